package appliertest

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// mutation names the one place in which the reference backend is broken. Empty breaks nothing.
type mutation string

func (m mutation) is(name mutation) bool { return m == name }

// mutants are, for each clause, broken backends that it must catch.
var mutants = map[string][]mutation{
	"Validate/accepts an applier that may be asked":                               {"Validate refuses"},
	"Validate/reports the source":                                                 {"Validate reports no source"},
	"Validate/writes nothing":                                                     {"Validate writes"},
	"Validate/tells an applier that does not exist":                               {"a missing applier is a failed check"},
	"Validate/tells a kind that is not served from an object that does not exist": {"a kind not served is a missing object"},
	"Validate/tells an identity that may not read":                                {"forbidden is a missing object"},
	"Validate/tells an identity that may not write":                               {"a refusal forgets the source"},
	"Validate/says nothing after a read that failed":                              {"no answer is a missing object"},
	"Validate/sees a new source":                                                  {"Validate remembers"},

	"Request/refuses a bad ask before it reads":               {"bad asks are read for"},
	"Request/refuses another repository":                      {"the repository is not compared", "errors hold secrets", "errors without a name"},
	"Request/refuses another branch":                          {"the branch is not compared"},
	"Request/takes any spelling of the repository and branch": {"repositories are compared as strings"},
	"Request/refuses an applier that does not exist":          {"a missing applier is created", "refusals are not permanent"},
	"Request/refuses an identity that may not read":           {"forbidden is a missing object", "refusals are not permanent"},
	"Request/keeps the API server's error":                    {"errors without their cause", "500 is permanent"},
	"Request/asks nothing for an empty commit":                {"an empty commit is asked for"},
	"Request/is current only where no run is needed":          {"catching up is never needed"},
	"Request/names what it started":                           {"the baseline is the whole object"},
	"Request/puts the token into the applier by one write":    {"the token is made up"},
	"Request/returns soon after its context ends":             {"Request ignores its context"},

	"Decision/is asked for right before Record and right before the write": {"Current is not asked before Record", "Current is not asked after Record"},
	"Decision/that is stale starts nothing":                                {"Current is not asked before Record"},
	"Decision/that gets stale while it is recorded starts nothing":         {"Current is not asked after Record"},
	"Decision/is recorded once, before the write":                          {"Record comes after the write", "Record is called twice"},
	"Decision/is recorded in a way that serves to follow it":               {"the baseline is to be that of the write"},
	"Decision/that cannot be recorded starts nothing":                      {"an error of Record is ignored"},
	"Decision/needs no callbacks":                                          {"Record is required"},
	"Decision/asks Held right before Record":                               {"Held is not asked"},

	"Operation/ends Succeeded at the commit that was applied":     {"success is assumed", "the suspend is not waited for"},
	"Operation/is followed by polling alone":                      {"only Observed is read"},
	"Operation/is followed by any client":                         {"Progress remembers operations"},
	"Operation/that fails says why":                               {"a failure has no message", "a failure is a success"},
	"Operation/has one end":                                       {"every Progress suspends"},
	"Operation/does not end before its apply":                     {"a running apply is taken for a failed one"},
	"Operation/that was never started is Failed":                  {"a recovered operation is started", "a lost operation never ends"},
	"Operation/reports nothing beside an error":                   {"Progress reports beside an error", "errors without their cause", "errors without a name"},
	"Operation/reports an applier that is gone as an end":         {"gone is an error"},
	"Operation/of another backend is refused":                     {"any operation is followed"},
	"Operation/has no end in a kind that is not served":           {"a kind not served is gone"},
	"Operation/has no end in a read that is forbidden":            {"forbidden is gone"},
	"Operation/runs beside others":                                {"Progress remembers the applier"},
	"Operation/survives a second request at the same time":        {"Request remembers the token"},
	"Answers/lost after the starting write make it unconfirmed":   {"an unconfirmed start is an error", "writes are never unconfirmed", "the starting write is refused each time"},
	"Answers/lost before the starting write make it unconfirmed":  {"an unconfirmed operation is started"},
	"Answers/of 500 at any request are survived":                  {"500 is permanent"},
	"Answers/of 429 at any request are survived":                  {"429 is permanent"},
	"Answers/of 409 at any write are survived":                    {"a conflict is permanent"},
	"Answers/that do not come are survived":                       {"no answer is permanent"},
	"Answers/that get lost are survived":                          {"an unconfirmed start is sent again", "writes are never unconfirmed"},
	"Answers/of 500 to a write that was made are survived":        {"500 means that nothing was written"},
	"Answers/of 409 to a write that was made are survived":        {"a conflict is not read again"},
	"Late/starts of an unconfirmed operation are followed":        {"an unconfirmed operation that is not seen has ended"},
	"Late/starts of a recovered operation are followed":           {"a recovered operation that is not seen has ended", "a suspend since the record is passed over"},
	"Late/starts are not sent":                                    {"a start is sent at any time"},
	"Crash/before any request is survived":                        {"a recovered operation is not suspended", "a recovered operation is started"},
	"Crash/after any request is survived":                         {"Record comes after the write", "a recovered operation is not suspended"},
	"Foreign/deletion between any two requests creates nothing":   {"a missing applier is created"},
	"Foreign/replacement between any two requests starts nothing": {"writes are not guarded"},
	"Foreign/retargeting between any two requests starts nothing": {"writes are not guarded"},
	"Foreign/hands at any moment leave the report true":           {"only our own token counts", "a resumed applier is left"},
	"Foreign/operations are not replaced":                         {"operations in progress are replaced"},
	"Foreign/operations are waited for":                           {"operations in progress are replaced"},

	"Holder/holds and hands back":                                     {"Suspend repeats its token", "Release does nothing"},
	"Holder/reports what was last applied":                            {"Suspension reports no apply"},
	"Holder/refuses an applier that is not held":                      {"nothing needs to be held", "not held is not permanent"},
	"Holder/is busy while an operation runs":                          {"an operation in progress is permanent"},
	"Holder/tells an applier that does not exist":                     {"Suspend errors are plain"},
	"Holder/is not held while an operation runs":                      {"Suspension is always good"},
	"Holder/suspends an overdue operation at once":                    {"Overdue waits"},
	"Holder/cuts an operation in progress short":                      {"a suspend ends what runs"},
	"Holder/says that a release is unconfirmed":                       {"an unconfirmed release is an error"},
	"Holder/says that a suspend is unconfirmed":                       {"writes are never unconfirmed"},
	"Holder/reports nothing beside an error":                          {"Suspension swallows errors"},
	"Watcher/shows what stands first":                                 {"Watch shows nothing first"},
	"Watcher/suffices to follow an operation":                         {"Watch shows only the first"},
	"Watcher/shows the newest state and not each step":                {"Watch queues each step"},
	"Watcher/shows that the applier is gone":                          {"Watch hides that the applier is gone"},
	"Watcher/opens a broken watch again":                              {"Watch breaks for good"},
	"Watcher/closes the channel when the watch is refused":            {"Watch stays open when it is refused"},
	"Watcher/closes the channel when its context ends":                {"Watch does not close its channel"},
	"Watcher/lets Progress read what was observed":                    {"Observed is left", "Observed is not read"},
	"Watcher/takes nothing that came before its own write for an end": {"Observed is always new"},

	"Prefetcher/lists the consumers of a source":            {"consumers are not sorted"},
	"Prefetcher/knows no consumers after an error":          {"a list that failed is empty"},
	"Prefetcher/makes the source fetch and applies nothing": {"Prefetch does nothing"},
	"Prefetcher/leaves a source alone that was not checked": {"any source is prefetched"},
	"Apply/returns once the commit is applied":              {"success is assumed"},
	"Apply/returns what failed":                             {"a failure is a success"},
	"Apply/settles when it is cancelled":                    {"Overdue waits"},
	"Quiet/makes no request while nothing changes":          {"Watch ticks"},
	"Quiet/makes no request once nobody asks":               {"Request works on after it returned"},
	"Quiet/leaves no goroutine":                             {"Request works on after it returned"},
}

// syncedMutants are those that only a backend without a Holder can be.
var syncedMutants = map[string][]mutation{
	"Foreign/operations are not replaced":                             {"operations in progress are replaced", "an operation in progress is permanent"},
	"Foreign/operations are waited for":                               {"operations in progress are not waited for"},
	"Wait/is as long as the ask says":                                 {"a negative wait is the default one", "waits are never over", "operations in progress are not waited for"},
	"Wait/ends with its context":                                      {"a wait ignores its context"},
	"Late/starts of an unconfirmed operation are followed":            {"an unconfirmed operation that is not seen has ended"},
	"Late/starts of a recovered operation are followed":               {"a recovered operation that is not seen has ended"},
	"Late/starts are not sent":                                        {"a start is sent at any time"},
	"Watcher/takes nothing that came before its own write for an end": {"Observed is always new"},
}

// A backend that keeps the contract passes, whether it holds or not.
func TestReference(t *testing.T) {
	t.Parallel()
	for name, synced := range map[string]bool{"held": false, "synced": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := referenceHarness(synced, "")
			h.Parallel = true
			Run(t, h)
		})
	}
}

// Each clause catches each backend that breaks it.
func TestMutants(t *testing.T) {
	t.Parallel()
	for _, c := range clauses {
		name := c.group + "/" + c.name
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for synced, all := range map[bool]map[string][]mutation{false: mutants, true: syncedMutants} {
				for _, m := range all[name] {
					t.Run(string(m), func(t *testing.T) {
						t.Parallel()
						synctest.Test(t, func(t *testing.T) {
							missing, err := c.try(t, referenceHarness(synced, m).withDefaults())
							assert.Empty(t, missing, "not checked")
							if assert.Error(t, err, "this clause does not catch a broken backend: %s", c.text) {
								t.Log(err)
							}
							<-time.After(5 * time.Minute) // A goroutine that a mutant left behind ends meanwhile.
						})
					})
				}
			}
		})
	}
}

// A clause that no broken backend proves would be a claim.
func TestEveryClauseHasAMutant(t *testing.T) {
	t.Parallel()
	var names []string
	for _, c := range clauses {
		name := c.group + "/" + c.name
		names = append(names, name)
		assert.NotEmpty(t, c.text, name)
		if c.group != "Harness" {
			assert.NotEmpty(t, append(mutants[name], syncedMutants[name]...), "%s has no mutant", name)
		}
	}
	for name := range mutants {
		assert.Contains(t, names, name, "mutants of a clause that is not there")
	}
	slices.Sort(names)
	assert.Equal(t, names, slices.Compact(slices.Clone(names)), "two clauses have one name")
}
