package providertest

// testCase is one thing that must hold for every provider.
type testCase struct {
	name  string
	run   func(c *trial)
	needs []need
	basic bool // no other case can pass without it
	alone bool // no other case may run at the same time
}

func cases() []testCase {
	return []testCase{
		{name: "Run returns when its context ends", run: (*trial).runReturns, basic: true},
		{name: "what is there at the start is reported", run: (*trial).startIsReported, basic: true},
		{name: "what comes later is reported", run: (*trial).laterIsReported, needs: []need{changes}},
		{name: "new credentials are news of the same member", run: (*trial).newCredentialsAreNews, needs: []need{changes, configs}},
		{name: "a touch is no news", run: (*trial).touchIsNoNews, needs: []need{changes}},
		{name: "what is removed is withdrawn", run: (*trial).removedIsWithdrawn, needs: []need{changes, removals}},
		{name: "what leaves is withdrawn when it has left", run: (*trial).leavingIsWithdrawnThen, needs: []need{changes, departures}},
		{name: "what comes back is reported anew", run: (*trial).returnIsReported, needs: []need{changes, removals}},
		{name: "what is renamed is withdrawn and reported", run: (*trial).renamedIsAnother, needs: []need{changes, renames}},
		{name: "labels are reported", run: (*trial).labelsAreReported, needs: []need{labels}},
		{name: "labels are followed", run: (*trial).labelsAreFollowed, needs: []need{changes, labels}},
		{name: "what cannot be used harms no other", run: (*trial).badHarmsNoOther, needs: []need{changes, breaks}},
		{name: "the older of two has the name", run: (*trial).olderHasTheName, needs: []need{changes, configs, removals, duplicates}},
		{name: "a refused member harms no other", run: (*trial).refusedHarmsNoOther},
		{name: "a source that is away at the start is waited for", run: (*trial).awayIsWaitedFor, needs: []need{interruptions}},
		{name: "an interruption withdraws nothing and is caught up", run: (*trial).interruptionIsCaughtUp, needs: []need{changes, removals, interruptions}},
		{name: "the end withdraws nothing", run: (*trial).endWithdrawsNothing},
		{name: "the end waits for no drain", run: (*trial).endWaitsForNoDrain, needs: []need{changes, removals}},
		{name: "no goroutine is left", run: (*trial).noGoroutineIsLeft, alone: true},
		{name: "no cluster is called", run: (*trial).noClusterIsCalled, needs: []need{configs}},
		{name: "no credentials are told", run: (*trial).noCredentialsAreTold, needs: []need{configs}},
	}
}

// need returns why a source lacks what a case needs, and "" if it does not.
type need func(h Harness, s Source) (missing string)

func configs(h Harness, _ Source) string       { return h.NoConfig }
func labels(h Harness, _ Source) string        { return h.NoLabels }
func changes(h Harness, _ Source) string       { return h.Fixed }
func removals(_ Harness, s Source) string      { return missing(s.Remove == nil, "Remove") }
func departures(_ Harness, s Source) string    { return missing(s.Leave == nil, "Leave") }
func renames(_ Harness, s Source) string       { return missing(s.Rename == nil, "Rename") }
func breaks(_ Harness, s Source) string        { return missing(s.Break == nil, "Break") }
func duplicates(_ Harness, s Source) string    { return missing(s.Duplicate == nil, "Duplicate") }
func interruptions(_ Harness, s Source) string { return missing(s.Interrupt == nil, "Interrupt") }

func missing(is bool, field string) string {
	if is {
		return "the source has no " + field
	}
	return ""
}
