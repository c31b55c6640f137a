package fleet

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/internal/gate"
)

// anyClient counts what reaches it.
type anyClient struct {
	client.Client
	client.SubResourceReader

	writes int
}

func (c *anyClient) did() error { c.writes++; return nil }

func (c *anyClient) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return nil
}

func (c *anyClient) Create(context.Context, client.Object, ...client.CreateOption) error {
	return c.did()
}

func (c *anyClient) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	return c.did()
}

func (c *anyClient) Update(context.Context, client.Object, ...client.UpdateOption) error {
	return c.did()
}

func (c *anyClient) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return c.did()
}

func (c *anyClient) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	return c.did()
}

func (c *anyClient) DeleteAllOf(context.Context, client.Object, ...client.DeleteAllOfOption) error {
	return c.did()
}
func (c *anyClient) Status() client.SubResourceWriter { return anySubResource{of: c} }
func (c *anyClient) SubResource(string) client.SubResourceClient {
	return anySubResource{of: c}
}

type anySubResource struct {
	client.SubResourceReader

	of *anyClient
}

func (s anySubResource) Create(context.Context, client.Object, client.Object, ...client.SubResourceCreateOption) error {
	return s.of.did()
}

func (s anySubResource) Update(context.Context, client.Object, ...client.SubResourceUpdateOption) error {
	return s.of.did()
}

func (s anySubResource) Patch(context.Context, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
	return s.of.did()
}

func (s anySubResource) Apply(context.Context, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
	return s.of.did()
}

// TestEveryWriteOfAProvidersClusterPassesTheGate: also one that controller-runtime adds later, which this does not find ours.
func TestEveryWriteOfAProvidersClusterPassesTheGate(t *testing.T) {
	left := time.Minute
	g := &gate.Gate{Remaining: func() time.Duration { return left }, Refusal: func() error { return ErrNotOwned }}
	inner := &anyClient{}
	c := gatedClient{inner, g}
	writers := map[reflect.Type][]any{
		reflect.TypeFor[client.Writer]():            {c},
		reflect.TypeFor[client.SubResourceWriter](): {c.Status(), c.SubResource("scale")},
	}
	calls := 0
	for kind, all := range writers {
		for method := range kind.Methods() {
			for _, w := range all {
				calls++
				if err := callWrite(t, w, method.Name); err != nil {
					t.Errorf("%s of %T: %v", method.Name, w, err)
				}
			}
		}
	}
	if inner.writes != calls {
		t.Errorf("%d of %d writes passed the open gate", inner.writes, calls)
	}
	left, inner.writes = 0, 0
	for kind, all := range writers {
		for method := range kind.Methods() {
			for _, w := range all {
				if err := callWrite(t, w, method.Name); !errors.Is(err, ErrNotOwned) {
					t.Errorf("%s of %T: %v, want it refused", method.Name, w, err)
				}
			}
		}
	}
	if inner.writes > 0 {
		t.Errorf("%d writes passed the closed gate", inner.writes)
	}
	if err := c.Get(t.Context(), client.ObjectKey{}, &corev1.Pod{}); err != nil {
		t.Errorf("reading: %v", err)
	}
}

// slowClient has its caller give up while a write is under way.
type slowClient struct {
	anyClient

	giveUp context.CancelFunc
}

func (c *slowClient) Update(ctx context.Context, _ client.Object, _ ...client.UpdateOption) error {
	c.giveUp()
	if _, limited := ctx.Deadline(); !limited {
		return errors.New("it has no time limit")
	}
	return ctx.Err()
}

// TestAWriteOfAProvidersClusterIsWaitedFor although its caller gives up, as what runs for the member is awaited before another replica
// has that. A caller that has given up before writes nothing.
func TestAWriteOfAProvidersClusterIsWaitedFor(t *testing.T) {
	g := &gate.Gate{Remaining: func() time.Duration { return time.Minute }, Refusal: func() error { return ErrNotOwned }}
	for name, own := range map[string]*gate.Gate{"that is owned": g, "that is visited": nil} {
		ctx, giveUp := context.WithCancel(gate.With(t.Context(), g))
		inner := &slowClient{giveUp: giveUp}
		c := gatedClient{inner, own}
		if err := c.Update(ctx, &corev1.Pod{}); err != nil {
			t.Errorf("a cluster %s: the write has ended with its caller, or may take for ever: %v", name, err)
		}
		if err := c.Create(ctx, &corev1.Pod{}); !errors.Is(err, context.Canceled) || inner.writes > 0 {
			t.Errorf("a cluster %s: a caller that has given up writes: %v", name, err)
		}
	}
}

// callWrite calls a method that writes, with nothing in particular.
func callWrite(t *testing.T, writer any, method string) error {
	t.Helper()
	m := reflect.ValueOf(writer).MethodByName(method)
	args := []reflect.Value{reflect.ValueOf(t.Context())}
	for i := 1; i < m.Type().NumIn()-1; i++ {
		switch in := m.Type().In(i); in {
		case reflect.TypeFor[client.Object]():
			args = append(args, reflect.ValueOf(&corev1.Pod{}))
		case reflect.TypeFor[runtime.ApplyConfiguration]():
			args = append(args, reflect.ValueOf(corev1apply.Pod("a", "b")))
		default:
			args = append(args, reflect.Zero(in))
		}
	}
	err, _ := reflect.TypeAssert[error](m.Call(args)[0])
	return err
}
