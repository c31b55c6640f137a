package command_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	accessv1alpha1 "github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/cmd/mcctl/internal/command"
	membersv1alpha1 "github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

// constants returns the values of the constants of a package that begin with a prefix, or have a type of that name.
func constants(t *testing.T, folder, prefix string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../../../..", folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]bool{}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, is := n.(*ast.ValueSpec)
			if !is || len(spec.Values) != 1 {
				return true
			}
			of, _ := spec.Type.(*ast.Ident)
			value, is := spec.Values[0].(*ast.BasicLit)
			if is && value.Kind == token.STRING && (strings.HasPrefix(spec.Names[0].Name, prefix) || of != nil && of.Name == prefix) {
				text, _ := strconv.Unquote(value.Value)
				values[text] = true
			}
			return true
		})
	}
	if len(values) < 2 {
		t.Fatalf("%s has no constants %s", folder, prefix)
	}
	return slices.Sorted(maps.Keys(values))
}

// accessOf returns a ClusterAccess of each mode, which has a reason if that is not empty.
func accessOf(mode, reason string) *accessv1alpha1.ClusterAccess {
	a := &accessv1alpha1.ClusterAccess{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "east"}, Spec: accessv1alpha1.ClusterAccessSpec{Server: "https://east.example.com"}}
	if mode == "federated" {
		a.Spec.Federated = &accessv1alpha1.Federated{ServiceAccountName: "operator"}
	} else {
		a.Spec.Minter = &accessv1alpha1.Minter{SecretName: "east-minter", ServiceAccountNamespace: "fleet-system", ServiceAccountName: "fleet"}
	}
	a.Spec.Paused = reason == accessv1alpha1.ReasonPaused
	if reason != "" {
		a.Status.Conditions = []metav1.Condition{{Type: accessv1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason}}
	}
	return a
}

func memberOf(state, reason string) *membersv1alpha1.Member {
	m := &membersv1alpha1.Member{Spec: membersv1alpha1.Spec{ClusterName: "east"}}
	m.Status.State, m.Status.Reason = state, reason
	return m
}

// cure returns what describe says is to be done.
func cure(t *testing.T, member *membersv1alpha1.Member, access *accessv1alpha1.ClusterAccess) string {
	t.Helper()
	text, ready := command.Describe(member, access)
	_, cure, _ := strings.Cut(text, "Do this:")
	if cure = strings.TrimSpace(cure); ready || cure == "" || strings.Contains(cure, "docs/") {
		t.Errorf("it is Ready (%t), or there is nothing to do but to read:\n%s", ready, text)
	}
	return cure
}

func TestEachReasonForWhichAMemberIsNotReadyComesWithOneThingToDo(t *testing.T) {
	t.Parallel()
	ofAccess := slices.DeleteFunc(constants(t, "access/v1alpha1", "Reason"), func(reason string) bool {
		// These are of what is Ready, and of imports.
		return slices.Contains([]string{accessv1alpha1.ReasonAsExpected, accessv1alpha1.ReasonClusterNotFound, accessv1alpha1.ReasonSecretExists}, reason)
	})
	for _, mode := range []string{"minted", "federated"} {
		by := map[string]string{}
		for _, reason := range ofAccess {
			t.Run(mode+" "+reason, func(t *testing.T) {
				access := accessOf(mode, reason)
				alone := cure(t, memberOf("", ""), access)
				access.Status.Conditions = nil
				if of := cure(t, memberOf("Unreachable", reason), access); of != alone {
					t.Errorf("of a Member, it is %q, and of a ClusterAccess %q", of, alone)
				}
				by[reason] = alone
			})
		}
		for reason, says := range map[string]string{
			"EqualIssuers": "--service-account-issuer", "HubError": "the hub's API server answers", "Invalid": "the field", "Loopback": "--advertise-server", "Paused": "spec.paused",
		} {
			if !strings.Contains(by[reason], says) {
				t.Errorf("%s %s: %q, want %q", mode, reason, by[reason], says)
			}
		}
		joins := strings.Contains(by["ServiceAccountNotFound"]+by["NotAllowed"], "mcctl join")
		if joins != (mode == "minted") {
			t.Errorf("%s: an account that is not there: %q, and one that gets no token: %q", mode, by["ServiceAccountNotFound"], by["NotAllowed"])
		}
		if of := cure(t, memberOf("", ""), accessOf(mode, "Certificate")); !strings.Contains(of, "spec.caBundle") {
			t.Errorf("%s: a certificate that is not known: %q", mode, of)
		}
	}
	for _, reason := range append(constants(t, "fleet", "Reason"), "UnknownCluster", "WrongName") {
		t.Run("of the fleet "+reason, func(t *testing.T) {
			cure(t, memberOf("Unreachable", reason), nil)
			cure(t, memberOf("Unreachable", reason), accessOf("minted", ""))
		})
	}
}

func TestEachStateOfAMemberThatIsNotReadyComesWithOneThingToDo(t *testing.T) {
	t.Parallel()
	for _, state := range append(constants(t, "fleet", "State"), constants(t, "members/v1alpha1", "State")...) {
		t.Run(state, func(t *testing.T) {
			if of := cure(t, memberOf(state, ""), nil); state != "Ready" && strings.Contains(of, "look at the log") {
				t.Errorf("there is nothing to do but to look at the log: %q", of)
			}
		})
	}
	t.Run("that is to leave", func(t *testing.T) {
		m := memberOf("Drained", "Drained")
		m.Spec.Leave = true
		if of := cure(t, m, nil); !strings.HasPrefix(of, "mcctl undrain east") {
			t.Errorf("%q", of)
		}
	})
	t.Run("none", func(t *testing.T) { cure(t, memberOf("", ""), nil) })
	t.Run("no Member", func(t *testing.T) { cure(t, nil, accessOf("minted", "")) })
	t.Run("none, with a ClusterAccess that is Ready", func(t *testing.T) { cure(t, memberOf("", ""), accessOf("minted", "")) })
}

// TestWhyAMemberIsUnreachableIsToldAlsoWhileItIsHeldBack, unless that is all there is to it.
func TestWhyAMemberIsUnreachableIsToldAlsoWhileItIsHeldBack(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]membersv1alpha1.Spec{"paused": {Paused: true}, "to leave": {Leave: true}} {
		member := memberOf("Unreachable", "Timeout")
		member.Spec.Paused, member.Spec.Leave = spec.Paused, spec.Leave
		text, _ := command.Describe(member, nil)
		if _, first, _ := strings.Cut(text, "Do this:"); !strings.Contains(text, "Timeout: ") || strings.Contains(first, "mcctl ") {
			t.Errorf("%s: it is not told why, first of all:\n%s", name, text)
		}
		member = memberOf("Ready", "Paused")
		member.Spec.Paused = true
		if text, _ := command.Describe(member, nil); strings.Contains(text, "Paused: \n") || !strings.Contains(text, "mcctl resume east") {
			t.Errorf("that it is paused is told twice, or not what to do:\n%s", text)
		}
	}
}

// TestCredentialsThatEndWhileNobodyUsesThemAreNotToBeRenewed: a manager renews those of a ClusterAccess when it uses them.
func TestCredentialsThatEndWhileNobodyUsesThemAreNotToBeRenewed(t *testing.T) {
	t.Parallel()
	accesses := map[string]*accessv1alpha1.ClusterAccess{"minted": accessOf("minted", ""), "federated": accessOf("federated", ""), "of another provider": nil}
	renewal := map[string]string{"minted": "run mcctl join", "federated": "gives the manager no other token", "of another provider": "renew them where they come from"}
	for name, c := range map[string]struct {
		spec  membersv1alpha1.Spec
		state string
		stale bool
		why   string // no why means that they are to be renewed
		cure  string
	}{
		"unreachable":     {state: "Unreachable"},
		"paused":          {spec: membersv1alpha1.Spec{Paused: true}, state: "Unreachable"},
		"manager gone":    {state: "Ready", stale: true, why: "the manager is gone", cure: "see why the manager does not run"},
		"drained":         {spec: membersv1alpha1.Spec{Drained: true}, state: "Drained", why: "it is drained", cure: "mcctl undrain east"},
		"still draining":  {spec: membersv1alpha1.Spec{Drained: true}, state: "Draining", why: "it is drained", cure: "mcctl undrain east"},
		"to leave":        {spec: membersv1alpha1.Spec{Leave: true}, state: "Unreachable"},
		"to leave first":  {spec: membersv1alpha1.Spec{Leave: true, Drained: true}, state: "Unreachable"},
		"has left":        {spec: membersv1alpha1.Spec{Leave: true}, state: "Drained", why: "it is drained", cure: "mcctl undrain east"},
		"by a program":    {state: "Drained", why: "it is drained", cure: "let it run again where it was held back"},
		"owned by nobody": {state: "NotOwned", why: "no replica works on it", cure: "see mcctl shards"},
		"gone, drained":   {spec: membersv1alpha1.Spec{Drained: true}, state: "Drained", stale: true, why: "the manager is gone", cure: "see why the manager does not run"},
	} {
		for kind, access := range accesses {
			t.Run(name+" "+kind, func(t *testing.T) {
				member := memberOf(c.state, "")
				member.Spec.Drained, member.Spec.Leave, member.Spec.Paused = c.spec.Drained, c.spec.Leave, c.spec.Paused
				member.Status.Expires = metav1.NewTime(time.Now().Add(-time.Hour))
				member.Status.Lease = &membersv1alpha1.Lease{Namespace: "fleet", Name: "manager"}
				text, _ := command.Describe(member, access)
				if c.stale {
					text = command.DescribeStale(member, access)
				}
				says, want := "expired at ", renewal[kind]
				if c.why != "" {
					says, want = "nothing renews them while "+c.why, c.cure
				}
				if _, first, _ := strings.Cut(text, "Do this:"); !strings.Contains(text, says) || !strings.Contains(first, want) {
					t.Errorf("it does not say %q and %q:\n%s", says, want, text)
				}
			})
		}
	}
}

func TestAMemberWithoutAnObjectWhoseAccessIsReadyComesWithNothingToDo(t *testing.T) {
	t.Parallel()
	access := accessOf("minted", "")
	access.Status.Conditions = []metav1.Condition{{Type: accessv1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: accessv1alpha1.ReasonAsExpected}}
	if text, ready := command.Describe(nil, access); !ready || strings.Contains(text, "Do this") || !strings.Contains(text, "members.Setup") {
		t.Errorf("describe exits with 0 (%t), and says:\n%s", ready, text)
	}
}

func TestAMintersTokenThatIsNotRenewedIsShownWithOneThingToDo(t *testing.T) {
	t.Parallel()
	access := accessOf("minted", "")
	access.Status.Conditions = []metav1.Condition{{
		Type: accessv1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: accessv1alpha1.ReasonNotRenewed, Message: "it expires at noon: forbidden",
	}}
	access.Status.ExpirationTime = metav1.NewTime(time.Now().Add(time.Hour))
	member := memberOf("Ready", "")
	member.Status.Expires = access.Status.ExpirationTime
	member.Status.Conditions = []metav1.Condition{{Type: membersv1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
	for _, of := range []*membersv1alpha1.Member{nil, member} {
		text, ready := command.Describe(of, access)
		if !ready || !strings.Contains(text, "good until ") || !strings.Contains(text, "NotRenewed: it expires at noon: forbidden\n") ||
			!strings.Contains(text, "mend what the message names") {
			t.Errorf("describe exits with 0 (%t), and says:\n%s", ready, text)
		}
	}
}
