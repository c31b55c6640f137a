package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// forward opens a connection to a port of a Pod as kubectl port-forward does: through the API server, with the caller's rights. No
// port is opened here. The connection ends with ctx.
func (r *reached) forward(ctx context.Context, pod *corev1.Pod, port int32) (net.Conn, error) {
	transport, upgrader, err := spdy.RoundTripperFor(r.config)
	if err != nil {
		return nil, err
	}
	core, err := coreclient.NewForConfig(r.config)
	if err != nil {
		return nil, err
	}
	at := core.RESTClient().Post().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("portforward").URL()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at.String(), nil)
	if err != nil {
		return nil, err
	}
	conn, _, err := spdy.NegotiateStreaming(upgrader, &http.Client{Transport: transport}, req, portforward.PortForwardProtocolV1Name)
	if err != nil {
		return nil, err
	}
	headers := http.Header{}
	headers.Set(corev1.PortHeader, strconv.Itoa(int(port)))
	headers.Set(corev1.PortForwardRequestIDHeader, "0")
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	problems, err := conn.CreateStream(headers)
	if err != nil {
		return nil, closing(conn, err)
	}
	_ = problems.Close() // nothing is sent on it
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := conn.CreateStream(headers)
	if err != nil {
		return nil, closing(conn, err)
	}
	return &forwarded{Stream: data, problems: problems, conn: conn, unwatch: context.AfterFunc(ctx, func() { _ = conn.Close() })}, nil
}

// closing closes what is of no use after an error, and returns that.
func closing(conn io.Closer, err error) error {
	_ = conn.Close()
	return err
}

// forwarded is a connection to a port of a Pod.
type forwarded struct {
	httpstream.Stream

	problems io.Reader // what the node says of it
	conn     httpstream.Connection
	unwatch  func() bool
}

// Read implements net.Conn. Where the connection ends, it tells why, if the node has said so.
func (f *forwarded) Read(to []byte) (int, error) {
	n, err := f.Stream.Read(to)
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	if why, _ := io.ReadAll(io.LimitReader(f.problems, 1000)); len(why) > 0 {
		err = fmt.Errorf("the node says: %s", strings.TrimSpace(string(why)))
	}
	return n, err
}

// Close implements net.Conn.
func (f *forwarded) Close() error {
	f.unwatch()
	return f.conn.Close()
}

// The context ends what waits, so that there are no deadlines.

func (*forwarded) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (*forwarded) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*forwarded) SetDeadline(time.Time) error      { return nil }
func (*forwarded) SetReadDeadline(time.Time) error  { return nil }
func (*forwarded) SetWriteDeadline(time.Time) error { return nil }
