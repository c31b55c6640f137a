package mctest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/fleet-runtime/fleet-runtime/access/rights"
)

// auditPolicy notes the requests of service accounts. Those of the test itself are an administrator's, and cost nothing.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: Metadata
  userGroups: ["system:serviceaccounts"]
`

// auditTo has an API server write its audit log into a folder, and returns the path. The log is not rotated, and each stage of a
// request is in it before the request goes on.
func auditTo(apiServer *envtest.APIServer, dir string) (string, error) {
	policy, log := filepath.Join(dir, "audit-policy.yaml"), filepath.Join(dir, "audit.log")
	apiServer.Configure().
		Set("audit-policy-file", policy).
		Set("audit-log-path", log).
		Set("audit-log-mode", "blocking").
		Set("audit-log-maxsize", "1000000") // megabytes
	return log, os.WriteFile(policy, []byte(auditPolicy), 0o600)
}

// auditEvent is what is read of a line of an audit log.
type auditEvent struct {
	AuditID          string                     `json:"auditID"` //nolint:tagliatelle // the API's
	Stage            string                     `json:"stage"`
	Verb             string                     `json:"verb"`
	RequestURI       string                     `json:"requestURI"` //nolint:tagliatelle // the API's
	User             authenticationv1.UserInfo  `json:"user"`
	ImpersonatedUser *authenticationv1.UserInfo `json:"impersonatedUser"`
	ObjectRef        *auditObject               `json:"objectRef"`
	ResponseStatus   *metav1.Status             `json:"responseStatus"`
}

type auditObject struct {
	APIGroup    string `json:"apiGroup"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource"`
	Namespace   string `json:"namespace"`
	Name        string `json:"name"`
}

// Stages of a request.
const (
	requestReceived  = "RequestReceived"
	responseStarted  = "ResponseStarted" // of a watch
	responseComplete = "ResponseComplete"
	panicked         = "Panic"
)

// auditLog is the log of an API server, from some place on.
type auditLog struct {
	path string
	at   int64
}

// next returns what was written since it was called last.
func (l *auditLog) next() ([]auditEvent, error) {
	file, err := os.Open(l.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.NewSectionReader(file, l.at, 1<<62))
	if err != nil {
		return nil, err
	}
	content = content[:bytes.LastIndexByte(content, '\n')+1] // the line after is being written
	l.at += int64(len(content))
	var events []auditEvent
	for line := range bytes.Lines(content) {
		var e auditEvent
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("reading the audit log %s: %w", l.path, err)
		}
		events = append(events, e)
	}
	return events, nil
}

// skip passes over what is there.
func (l *auditLog) skip() error {
	info, err := os.Stat(l.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		l.at = info.Size()
	}
	return err
}

// rights returns what a request asks for: that which its user needs to send it.
func (e auditEvent) rights() []rights.Right {
	if e.ImpersonatedUser != nil {
		return impersonation(*e.ImpersonatedUser)
	}
	if e.ObjectRef == nil {
		path, err := url.Parse(e.RequestURI)
		if err != nil {
			return nil
		}
		return []rights.Right{{Verb: e.Verb, URL: path.Path}}
	}
	o := e.ObjectRef
	r := rights.Right{Verb: e.Verb, Group: o.APIGroup, Resource: o.Resource, Name: o.Name, Namespace: o.Namespace}
	if o.Subresource != "" {
		r.Resource += "/" + o.Subresource
	}
	if o.Resource == "namespaces" && o.APIGroup == "" {
		r.Namespace = "" // a namespace is said to be in itself, and roles for it are not
	}
	return []rights.Right{r}
}

// code returns that of the answer, 0 if there is none.
func (e auditEvent) code() int {
	if e.ResponseStatus == nil {
		return 0
	}
	return int(e.ResponseStatus.Code)
}

// impersonation returns the rights to act as a user. What is done as the user needs rights of the user.
func impersonation(user authenticationv1.UserInfo) []rights.Right {
	as := func(group, resource, name string) rights.Right {
		return rights.Right{Verb: "impersonate", Group: group, Resource: resource, Name: name}
	}
	all := []rights.Right{as("", "users", user.Username)}
	if account, ok := strings.CutPrefix(user.Username, "system:serviceaccount:"); ok {
		namespace, name, _ := strings.Cut(account, ":")
		all[0] = as("", "serviceaccounts", name)
		all[0].Namespace = namespace
	}
	for _, group := range user.Groups {
		isGiven := group == "system:authenticated" || strings.HasPrefix(group, "system:serviceaccounts")
		if !isGiven { // by the API server
			all = append(all, as("", "groups", group))
		}
	}
	if user.UID != "" {
		all = append(all, as("authentication.k8s.io", "uids", user.UID))
	}
	for key, values := range user.Extra {
		for _, value := range values {
			all = append(all, as("authentication.k8s.io", "userextras/"+key, value))
		}
	}
	return all
}

// entailed returns the rights that go with one that was asked for, with the code of the answer, 0 if there is none. Whether they are
// asked for is up to the version of the API server, or to chance.
func entailed(r rights.Right, code int) []rights.Right {
	also := r
	switch {
	case r.Verb == "watch": // API servers before 1.34 do not stream the first list
		also.Verb = "list"
	case r.Verb == create && r.Resource == "events" && slices.Contains([]string{"", "events.k8s.io"}, r.Group): // one that repeats
		also.Verb = patch
	case code == http.StatusCreated && (r.Verb == patch || r.Verb == "update"): // what was absent is created
		also.Verb, also.Name = create, ""
	default:
		return nil
	}
	return []rights.Right{also}
}

// everybodys are rights that all users have, by the roles that API servers make themselves.
var everybodys = []rights.Right{
	mayGet("/api*"), mayGet("/apis*"), mayGet("/openapi*"), mayGet("/version*"), mayGet("/healthz*"), mayGet("/livez*"), mayGet("/readyz*"),
	{Verb: create, Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"},
	{Verb: create, Group: "authorization.k8s.io", Resource: "selfsubjectrulesreviews"},
	{Verb: create, Group: "authentication.k8s.io", Resource: "selfsubjectreviews"},
}

// Verbs.
const get, create, patch = "get", "create", "patch"

func mayGet(path string) rights.Right { return rights.Right{Verb: get, URL: path} }
