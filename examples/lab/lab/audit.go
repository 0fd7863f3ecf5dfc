package lab

import (
	"os"
	"path/filepath"
)

// AuditLog is the file to which the API server appends one audit.k8s.io/v1 Event
// as JSON on each line, across restarts. It exists if [Options] had a policy.
func (l *Lab) AuditLog() string { return filepath.Join(l.environment.dir, "audit.log") }

// audit makes the API server, which has not started yet, keep an audit log.
func (l *Lab) audit(policy string) error {
	path := filepath.Join(l.environment.dir, "audit-policy.yaml")
	if err := os.WriteFile(path, []byte(policy), 0o600); err != nil {
		return err
	}
	l.APIServer.args = append(l.APIServer.args,
		"--audit-policy-file="+path,
		"--audit-log-path="+l.AuditLog(),
		// It writes each event before it takes the next step, and never starts a second file.
		"--audit-log-mode=blocking",
		"--audit-log-maxsize=100000",
	)
	return nil
}
