package command

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1alpha1 "github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/cmd/mcctl/internal/membership"
	"github.com/fleet-runtime/fleet-runtime/fleet"
	membersv1alpha1 "github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

type list struct {
	*shared

	selector   string
	everywhere bool
	noHeaders  bool
	print      *genericclioptions.PrintFlags
}

func newList(s *shared) *cobra.Command {
	l := &list{shared: s, print: genericclioptions.NewPrintFlags("").WithTypeSetter(newScheme())}
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"get", "ls"},
		Short:   "Show the members of the fleet",
		Long: `Shows the members of the fleet, as their managers see them.

STALE is a member of which nobody keeps the state up to date, since the manager that wrote it is gone. Where managers write no
Members, the ClusterAccesses are shown, with what is known of their credentials. Beside Members, those that have none come last, without a
state; -o json, yaml and templates have the Members alone.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return l.run(c.Context()) },
	}
	flags := c.Flags()
	flags.StringVarP(&l.selector, "selector", "l", "", "Labels that members have, as kubectl's selectors")
	flags.BoolVarP(&l.everywhere, "all-namespaces", "A", false, "Those of all namespaces of the hub")
	flags.BoolVar(&l.noHeaders, "no-headers", false, "Leave the headers out")
	l.print.AddFlags(c)
	c.Flags().Lookup("output").Usage = "wide, json, yaml, name, jsonpath=... or go-template=..."
	return c
}

func (l *list) run(ctx context.Context) error {
	selector, err := labels.Parse(l.selector)
	if err != nil {
		return usageError("--selector: %w", err)
	}
	hub, err := l.hub.connect(ctx)
	if err != nil {
		return err
	}
	options := &client.ListOptions{LabelSelector: selector, Namespace: hub.namespace}
	if l.everywhere {
		options.Namespace = ""
	}
	members, accesses := &membersv1alpha1.MemberList{}, &accessv1alpha1.ClusterAccessList{}
	if err := hub.List(ctx, members, options); err != nil && !meta.IsNoMatchError(err) {
		return fmt.Errorf("list the members in the hub (%s): %w", hub.config.Host, err)
	}
	err = hub.List(ctx, accesses, options)
	if apierrors.IsForbidden(err) && len(members.Items) > 0 {
		return l.show(members, func() *metav1.Table { return tableOfMembers(ctx, hub, members.Items, nil, l.everywhere) })
	}
	if err != nil && !meta.IsNoMatchError(err) {
		return fmt.Errorf("list the ClusterAccesses in the hub (%s): %w", hub.config.Host, err)
	}
	if len(members.Items) > 0 {
		return l.both(ctx, hub, members, accesses, options)
	}
	if len(accesses.Items) == 0 {
		tellf(l.streams.ErrOut, "The hub (%s) has no members in the namespace %q.\n", hub.config.Host, options.Namespace)
	}
	return l.show(accesses, func() *metav1.Table { return tableOfAccesses(accesses.Items, l.everywhere) })
}

// both shows Members, and after them the ClusterAccesses that have none. Formats of one kind have the Members alone, and the others are named.
func (l *list) both(
	ctx context.Context, hub *reached, members *membersv1alpha1.MemberList, accesses *accessv1alpha1.ClusterAccessList, options *client.ListOptions,
) error {
	all := members
	if !options.LabelSelector.Empty() { // a Member may have other labels for a moment
		all = &membersv1alpha1.MemberList{}
		if err := hub.List(ctx, all, client.InNamespace(options.Namespace)); err != nil {
			return fmt.Errorf("list the members in the hub (%s): %w", hub.config.Host, err)
		}
	}
	has := map[string]bool{}
	for i := range all.Items {
		has[all.Items[i].Spec.ClusterName] = true
	}
	accesses.Items = slices.DeleteFunc(accesses.Items, func(a accessv1alpha1.ClusterAccess) bool { return has[a.Name] || has[a.Namespace+"/"+a.Name] })
	err := l.show(members, func() *metav1.Table { return tableOfMembers(ctx, hub, members.Items, accesses.Items, l.everywhere) })
	if format := *l.print.OutputFormat; err != nil || len(accesses.Items) == 0 || format == "" || format == asWide {
		return err
	}
	if *l.print.OutputFormat == asName {
		return l.show(accesses, nil)
	}
	names := make([]string, len(accesses.Items))
	for i := range accesses.Items {
		names[i] = accesses.Items[i].Name
	}
	tellf(l.streams.ErrOut, "These have joined and have no Member, so they are not shown in this format: %s\n", strings.Join(names, ", "))
	return nil
}

// show prints objects in the format of -o, and as a table without one.
func (l *list) show(objects runtime.Object, table func() *metav1.Table) error {
	format := *l.print.OutputFormat
	if format == "" || format == asWide {
		t := table()
		if len(t.Rows) == 0 {
			return nil
		}
		return printers.NewTablePrinter(printers.PrintOptions{Wide: format == asWide, NoHeaders: l.noHeaders}).PrintObj(t, l.streams.Out)
	}
	printer, err := l.print.ToPrinter()
	if err != nil {
		return usageError("-o: %w", err)
	}
	if format == asName { // which takes no lists
		return meta.EachListItem(objects, func(obj runtime.Object) error { return printer.PrintObj(obj, l.streams.Out) })
	}
	return printer.PrintObj(objects, l.streams.Out)
}

// Formats of names alone, and of a table with all columns.
const (
	asName = "name"
	asWide = "wide"
)

// Names of columns, which are those of findings too.
const (
	columnState   = "State"
	columnReplica = "Replica"
	columnRights  = "Rights"
	columnQueue   = "Queue"
)

// columns are those of a table. Those with a priority are shown with -o wide.
func columns(everywhere bool, narrow, wide []string) []metav1.TableColumnDefinition {
	all := make([]metav1.TableColumnDefinition, 0, len(narrow)+len(wide))
	if everywhere {
		narrow = append([]string{"Namespace"}, narrow...)
	}
	for _, name := range narrow {
		all = append(all, metav1.TableColumnDefinition{Name: name, Type: "string"})
	}
	for _, name := range wide {
		all = append(all, metav1.TableColumnDefinition{Name: name, Type: "string", Priority: 1})
	}
	return all
}

// row returns a line of a table. What objects say in it is made legible.
func row(everywhere bool, obj metav1.Object, cells ...any) metav1.TableRow {
	if everywhere {
		cells = append([]any{obj.GetNamespace()}, cells...)
	}
	for i, cell := range cells {
		if text, is := cell.(string); is {
			cells[i] = legible(text)
		}
	}
	return metav1.TableRow{Cells: cells}
}

// tableOfMembers has the Members, and then the ClusterAccesses that have none.
func tableOfMembers(
	ctx context.Context, hub client.Reader, members []membersv1alpha1.Member, without []accessv1alpha1.ClusterAccess, everywhere bool,
) *metav1.Table {
	t := &metav1.Table{ColumnDefinitions: columns(everywhere,
		[]string{"Name", columnState, "Reason", "Since", "Version", columnReplica, "Age"}, []string{"Server", "Identity", "Expires", "Message"})}
	known := leases{}
	for i := range members {
		m := &members[i]
		state, reason := m.Status.State, m.Status.Reason
		switch {
		case known.stale(ctx, hub, m):
			state, reason = "STALE", "WriterGone"
		case m.Status.Drained:
			reason = orElse(reason, "Drained")
		case m.Status.Paused:
			reason = orElse(reason, "Paused")
		}
		t.Rows = append(t.Rows, row(everywhere, m, m.Spec.ClusterName, orNone(state), reason, ago(m.Status.Since), m.Status.Version, m.Status.Replica,
			ago(m.CreationTimestamp), m.Status.Server, m.Status.Identity, at(m.Status.Expires), m.Status.Message))
	}
	for i := range without {
		a := &without[i]
		reason, message := "NoMember", "no manager has written a Member of it"
		if c := meta.FindStatusCondition(a.Status.Conditions, accessv1alpha1.ConditionReady); c != nil && c.Status == metav1.ConditionFalse {
			reason, message = c.Reason, c.Message
		}
		t.Rows = append(t.Rows, row(everywhere, a, a.Name, orNone(""), reason, ago(metav1.Time{}), "", "",
			ago(a.CreationTimestamp), a.Spec.Server, a.Annotations[membership.IdentityAnnotation], at(a.Status.ExpirationTime), message))
	}
	return t
}

func tableOfAccesses(accesses []accessv1alpha1.ClusterAccess, everywhere bool) *metav1.Table {
	t := &metav1.Table{ColumnDefinitions: columns(everywhere,
		[]string{"Name", "Credentials", "Reason", "Age"}, []string{"Server", "Subject", "Expires", "Message"})}
	for i := range accesses {
		a := &accesses[i]
		state, reason, message := "Unknown", "", ""
		if c := meta.FindStatusCondition(a.Status.Conditions, accessv1alpha1.ConditionReady); c != nil {
			reason, message = c.Reason, c.Message
			state = map[metav1.ConditionStatus]string{metav1.ConditionTrue: string(fleet.Ready), metav1.ConditionFalse: "NotReady"}[c.Status]
		}
		t.Rows = append(t.Rows, row(everywhere, a, a.Name, orNone(state), reason, ago(a.CreationTimestamp), a.Spec.Server, a.Status.Subject,
			at(a.Status.ExpirationTime), message))
	}
	return t
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

func orNone(text string) string { return orElse(text, "<none>") }

// ago is how long ago something was, as kubectl writes it.
func ago(when metav1.Time) string {
	if when.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(when.Time))
}

func at(when metav1.Time) string {
	if when.IsZero() {
		return ""
	}
	return when.UTC().Format(time.RFC3339)
}
