package lab

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// credentials are what the API server and its clients must agree on. They are
// made anew for every lab and gone with its state.
type credentials struct {
	dir     string
	serving []byte // certificate, which clients trust
	admin   string // bearer token
}

func newCredentials(dir string) (*credentials, error) {
	serving, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return nil, err
	}
	accounts, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return nil, err
	}
	c := &credentials{dir: dir, serving: serving, admin: rand.Text()}
	for name, content := range map[string][]byte{
		"serving.crt":          serving,
		"serving.key":          key,
		"service-accounts.key": accounts,
		"tokens.csv":           []byte(c.admin + ",lab-admin,lab-admin,system:masters\n"),
	} {
		if err := os.WriteFile(c.file(name), content, 0o600); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *credentials) file(name string) string { return filepath.Join(c.dir, name) }

func (c *credentials) httpClient() *http.Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.serving)
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots},
		DisableKeepAlives: true,
	}}
}

// config reaches the API server on port with a bearer token.
func (c *credentials) config(port int, token string) *rest.Config {
	return &rest.Config{
		Host:            "https://" + address(port),
		BearerToken:     token,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.serving},
		QPS:             -1, // the limiter of client-go would decide what a test measures
	}
}

// writeKubeconfig puts the admin's access into a file.
func (c *credentials) writeKubeconfig(path string, port int) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["lab"] = &clientcmdapi.Cluster{
		Server:                   "https://" + address(port),
		CertificateAuthorityData: c.serving,
	}
	config.AuthInfos["lab-admin"] = &clientcmdapi.AuthInfo{Token: c.admin}
	config.Contexts["lab"] = &clientcmdapi.Context{Cluster: "lab", AuthInfo: "lab-admin"}
	config.CurrentContext = "lab"
	return clientcmd.WriteToFile(*config, path)
}

func newAPIServer(e *environment, path string, port, etcdPort int, c *credentials) *Process {
	url := "https://" + address(port)
	p := e.process(path, []int{port},
		[]string{
			"--etcd-servers=http://" + address(etcdPort),
			"--bind-address=127.0.0.1",
			fmt.Sprintf("--secure-port=%d", port),
			"--advertise-address=127.0.0.1",
			// Endpoints of the kubernetes Service may not be loopback addresses.
			"--endpoint-reconciler-type=none",
			"--service-cluster-ip-range=10.0.0.0/24",
			"--tls-cert-file=" + c.file("serving.crt"),
			"--tls-private-key-file=" + c.file("serving.key"),
			"--token-auth-file=" + c.file("tokens.csv"),
			"--authorization-mode=RBAC",
			"--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-key-file=" + c.file("service-accounts.key"),
			"--service-account-signing-key-file=" + c.file("service-accounts.key"),
			// It waits for a default ServiceAccount, and nobody here makes one.
			"--disable-admission-plugins=ServiceAccount",
			"--cert-dir=" + c.dir,
		},
		[]string{},
		httpReady(c.httpClient(), url+"/readyz", c.admin))
	p.grace = time.Second
	return p
}
