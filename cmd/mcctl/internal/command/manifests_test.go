package command_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	roleDocument = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: checksums}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [get]}
`
	bindingDocument = `apiVersion: rbac.authorization.k8s.io/v1
kind: %s
metadata: {name: checksums}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %s}
subjects:
- {kind: ServiceAccount, namespace: %s, name: fleet}
`
)

// joinBy lets the member join with the rights of some documents.
func (s *stage) joinBy(t *testing.T, documents string, args ...string) result {
	t.Helper()
	return s.run(t, append([]string{
		"join", "east", "--member-context", "member", "--rules", write(t, documents), "--advertise-server", s.Members[0].Config().Host,
	}, args...)...)
}

func TestManifestsThatCannotBeAppliedWholeAreNotAppliedInPart(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.addUser(t, s.Members[0], "writer", rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "create", "patch"}})
	asWriter := []string{"--member-user", "member-1-writer"}
	s.create(t, &corev1.Namespace{ObjectMeta: named("team")},
		&rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "watch"},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"watch"}}},
		},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "watch"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "watch"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "writer"}},
		},
		&rbacv1.ClusterRoleBinding{ObjectMeta: named("taken"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}},
	)
	inNew := func(document string) string {
		return strings.NewReplacer("kind: Cluster", "kind: ", "{name:", "{namespace: fleet-system, name:").Replace(document)
	}
	for name, c := range map[string]struct {
		documents string
		args      []string
		says      string
	}{
		"a binding without a namespace":     {roleDocument + "---\n" + fmt.Sprintf(bindingDocument, "RoleBinding", "checksums", "team"), nil, "RoleBinding checksums has no namespace"},
		"an account without a namespace":    {roleDocument + "---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: fleet}\n", nil, "ServiceAccount fleet has no namespace"},
		"a role without a name":             {strings.Replace(roleDocument, "{name: checksums}", "{generateName: checksums-}", 1), nil, "a ClusterRole without a name"},
		"a role twice":                      {roleDocument + "---\n" + strings.Replace(roleDocument, "get", "list", 1), nil, "ClusterRole checksums is there twice"},
		"a role of Kubernetes itself":       {strings.Replace(roleDocument, "checksums", "view", 1), nil, "ClusterRole view"},
		"a subject without a namespace":     {roleDocument + "---\n" + fmt.Sprintf(bindingDocument, "ClusterRoleBinding", "checksums", `""`), nil, "a service account fleet without a namespace"},
		"a binding of more than one may do": {roleDocument + "---\n" + fmt.Sprintf(bindingDocument, "ClusterRoleBinding", "cluster-admin", "fleet-system"), asWriter, "cannot give rights"},
		"a binding of a role that is not":   {roleDocument + "---\n" + fmt.Sprintf(bindingDocument, "ClusterRoleBinding", "nowhere", "fleet-system"), asWriter, "nowhere"},
		"an account that nothing is bound to": {
			roleDocument + "---\n" + fmt.Sprintf(bindingDocument, "ClusterRoleBinding", "checksums", "fleet-system"),
			[]string{"--service-account", "team/worker"},
			"team/worker",
		},
		"a role of more than one may do everywhere": {
			strings.Replace(roleDocument, "get", "watch", 1) + "---\n" +
				strings.Replace(fmt.Sprintf(bindingDocument, "RoleBinding", "checksums", "fleet-system"), "{name:", "{namespace: team, name:", 1),
			asWriter,
			"watch configmaps\n",
		},
		"an account whose minter's name is too long":        {roleDocument, []string{"--service-account", "team/" + strings.Repeat("n", 247)}, "about its minter"},
		"an account whose minter's policy is too long":      {roleDocument, []string{"--service-account", "team/" + strings.Repeat("n", 228)}, "about its minter"},
		"a binding that is there, and of another role":      {roleDocument + "---\n" + strings.Replace(fmt.Sprintf(bindingDocument, "ClusterRoleBinding", "checksums", "fleet-system"), "{name: checksums}", "{name: taken}", 1), nil, "ClusterRoleBinding taken"},
		"an account of a name that no server takes":         {roleDocument + "---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {namespace: team, name: Fleet_1}\n", nil, `ServiceAccount "Fleet_1"`},
		"a role in a namespace of such a name":              {strings.Replace(inNew(roleDocument), "fleet-system", "fleet.system", 1), nil, `"fleet.system"`},
		"a subject of a name that no server takes":          {roleDocument + "---\n" + strings.Replace(fmt.Sprintf(bindingDocument, "ClusterRoleBinding", "checksums", "fleet-system"), "name: fleet}", "name: Fleet_1}", 1), nil, `ServiceAccount "Fleet_1"`},
		"a role with a slash":                               {strings.Replace(inNew(roleDocument), "name: checksums", "name: check/sums", 1), nil, `Role "check/sums"`},
		"a rule without an API group in a new namespace":    {strings.Replace(inNew(roleDocument), `apiGroups: [""], `, "", 1), nil, "Role fleet-system/checksums"},
		"a label of a new namespace's that no server takes": {strings.Replace(inNew(roleDocument), "name: checksums", `name: checksums, labels: {team: "a b"}`, 1), nil, "metadata.labels"},
		"a subject of no kind":                              {inNew(roleDocument) + "---\n" + strings.Replace(inNew(fmt.Sprintf(bindingDocument, "RoleBinding", "checksums", "fleet-system")), "kind: ServiceAccount", "kind: user", 1), nil, `whose kind is "user"`},
		"a subject without a name":                          {inNew(roleDocument) + "---\n" + strings.Replace(inNew(fmt.Sprintf(bindingDocument, "RoleBinding", "checksums", "fleet-system")), "name: fleet}", `name: ""}`, 1), nil, "RoleBinding checksums is for a ServiceAccount"},
		"a binding of a role of no kind":                    {inNew(roleDocument) + "---\n" + strings.Replace(inNew(fmt.Sprintf(bindingDocument, "RoleBinding", "checksums", "fleet-system")), "kind: Role,", "kind: clusterRole,", 1), nil, `"clusterRole"`},
		"a binding of a role of another group":              {roleDocument + "---\n" + strings.Replace(fmt.Sprintf(bindingDocument, "ClusterRoleBinding", "checksums", "fleet-system"), "apiGroup: rbac", "apiGroup: roles", 1), nil, `"roles.authorization.k8s.io"`},
		"a rule without an API group":                       {strings.Replace(roleDocument, `apiGroups: [""], `, "", 1), nil, "ClusterRole checksums"},
	} {
		t.Run(name, func(t *testing.T) {
			r := s.joinBy(t, c.documents, c.args...)
			if r.code == 0 || !strings.Contains(r.errOut, c.says) {
				t.Errorf("exit code %d, and it does not say %q:\n%s", r.code, c.says, r.errOut)
			}
			s.untouched(t)
		})
	}
}

// create makes objects in the member.
func (s *stage) create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, obj := range objects {
		if err := s.Members[0].Client().Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRightsThatAMemberRefusesInPartAreNotGivenInPart(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	before := s.madeByMcctl(t)
	renamed := strings.Replace(roleDocument, "checksums", "more", 1) + "---\n" + fmt.Sprintf(bindingDocument, "ClusterRoleBinding", "more", "fleet-system")
	r := s.run(t, "rbac", "east", "--member-context", "member", "--rules", write(t, renamed))
	if r.code != 1 || !strings.Contains(r.errOut, "nothing was written") || !strings.Contains(r.errOut, "ClusterRoleBinding checksums") {
		t.Errorf("%+v", r)
	}
	if after := s.madeByMcctl(t); !maps.Equal(before, after) {
		t.Errorf("there were\n%v\nand then\n%v", before, after)
	}
}

func TestACallerThatHasTheRightsNeedsNoneToBindWhatIsNotMadeYet(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.addUser(t, s.Members[0], "holder", rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch", "create", "patch"}})
	for _, more := range [][]string{{"--dry-run=server"}, nil, nil} {
		if r := s.join(t, append(more, "--member-user", "member-1-holder")...); r.code != 0 {
			t.Errorf("%v: %+v", more, r)
		}
	}
}

func TestACallerThatMayNotMakeTokensForTheWorkerWritesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.addUser(t, s.Members[0], "narrow",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces", "serviceaccounts", "configmaps"}, Verbs: []string{"*"}},
		rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName, "admissionregistration.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "create", "patch"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, ResourceNames: []string{"fleet-minter"}, Verbs: []string{"create"}},
	)
	r := s.join(t, "--member-user", "member-1-narrow")
	if r.code != 1 || !strings.Contains(r.errOut, "create serviceaccounts/token fleet in fleet-system") {
		t.Errorf("%+v", r)
	}
	s.untouched(t)
}

func TestEachDocumentOfAManifestIsApplied(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	r := s.joinBy(t, "--- # the first\n"+roleDocument+"--- # the second\r\n"+strings.Replace(roleDocument, "checksums", "more", 1)+"---\r\n"+
		strings.Replace(roleDocument, "checksums", "most", 1)+"...\n---\n# nothing\n")
	if r.code != 0 {
		t.Fatalf("%+v", r)
	}
	for _, name := range []string{"checksums", "more", "most"} {
		if err := s.Members[0].Client().Get(t.Context(), client.ObjectKey{Name: name}, &rbacv1.ClusterRole{}); err != nil {
			t.Errorf("%v", err)
		}
	}
}

func TestANamespaceStaysInWhichOthersHaveSomethingBehindMuchThatGoes(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	member := s.Members[0].Client()
	for i := range 25 {
		going := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet-system", Name: fmt.Sprintf("a-%02d", i), Finalizers: []string{"example.com/wait"}}}
		if err := member.Create(t.Context(), going); err != nil {
			t.Fatal(err)
		}
		if err := member.Delete(t.Context(), going); err != nil {
			t.Fatal(err)
		}
	}
	stays := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet-system", Name: "stays"}}
	if err := member.Create(t.Context(), stays); err != nil {
		t.Fatal(err)
	}
	if r := s.run(t, "leave", "east", "--member-context", "member"); r.code != 0 || !strings.Contains(r.errOut, "kept, since ConfigMap stays is in it") {
		t.Errorf("leave: %+v", r)
	}
	namespace := &corev1.Namespace{}
	if err := member.Get(t.Context(), client.ObjectKey{Name: "fleet-system"}, namespace); err != nil || namespace.DeletionTimestamp != nil {
		t.Errorf("the namespace is deleted: %v", err)
	}
}

func TestRightsAreNotGivenForANameThatNobodyHas(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	more := write(t, strings.Replace(roleDocument, "checksums", "more", 1))
	if r := s.run(t, "rbac", "esat", "--member-context", "member", "--rules", more); r.code != 1 || !strings.Contains(r.errOut, `no member "esat"`) {
		t.Errorf("%+v", r)
	}
	if err := s.Members[0].Client().Get(t.Context(), client.ObjectKey{Name: "more"}, &rbacv1.ClusterRole{}); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the role was written, or: %v", err)
	}
}
