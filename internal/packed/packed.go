// Package packed keeps texts in little memory that are seldom read: descriptions of clusters, such as Secrets with kubeconfigs.
// What is in them is mostly certificates and keys, in base64, and that in base64 once more. So that is taken apart first, and
// what then repeats itself is left out: about a quarter of a Secret remains.
package packed

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"sync"
)

var writers = sync.Pool{New: func() any {
	w, err := flate.NewWriterDict(nil, flate.BestCompression, []byte(dictionary))
	if err != nil {
		panic(err) // the level is wrong
	}
	return w
}}

var readers = sync.Pool{New: func() any { return flate.NewReaderDict(nil, []byte(dictionary)) }}

// Pack returns text in another form, which is for this process alone.
func Pack(text []byte) []byte {
	w, ok := writers.Get().(*flate.Writer)
	if !ok {
		panic("packed: the pool has something else")
	}
	defer writers.Put(w)
	var out bytes.Buffer
	w.Reset(&out)
	_, _ = w.Write(takeApart(nil, text, 0)) // a buffer takes everything
	_ = w.Close()
	return bytes.Clone(out.Bytes())
}

// Unpack returns the text that was packed.
func Unpack(packed []byte) ([]byte, error) {
	r, ok := readers.Get().(io.ReadCloser)
	if !ok {
		panic("packed: the pool has something else")
	}
	defer readers.Put(r)
	if err := r.(flate.Resetter).Reset(bytes.NewReader(packed), []byte(dictionary)); err != nil {
		return nil, fmt.Errorf("unpacking: %w", err)
	}
	parts, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("unpacking: %w", err)
	}
	return putTogether(nil, parts)
}
