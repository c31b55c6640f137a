package protocol

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// MaxText bounds the text of a table, in bytes. Kubernetes takes 256 KiB of annotations per object.
const MaxText = 192 << 10

const version = 1

// text is a table as JSON. What there is one of per bucket is packed, and reads as base64.
type text struct {
	Version  int      `json:"v"`
	Hash     string   `json:"hash"`
	Gen      int64    `json:"gen"`
	Buckets  int      `json:"buckets"`
	Sessions []member `json:"sessions"`
	// Owner has per bucket one more than the index of its owner in Sessions, or 0.
	Owner []byte `json:"owner"`
	// Moving has per bucket that moves, in ascending order, how many buckets after the one before it is, and the index of the
	// session that is to own it.
	Moving []byte `json:"moving,omitempty"`
	// Base is the smallest epoch, and Epoch has what is to be added to it, per bucket.
	Base  int64  `json:"base,omitempty"`
	Epoch []byte `json:"epoch"`
}

type member struct {
	Session  string `json:"s"`
	Revision string `json:"r,omitempty"`
	Capacity int    `json:"c,omitempty"`
}

const hash = "xxh64"

// Encode returns the text of a table, which Decode reads.
func (t *Table) Encode() (string, error) {
	if len(t.Owner) == 0 || len(t.Epoch) != len(t.Owner) {
		return "", fmt.Errorf("the table has %d buckets and %d epochs", len(t.Owner), len(t.Epoch))
	}
	index := make(map[string]int, len(t.Sessions))
	out := text{Version: version, Hash: hash, Gen: t.Gen, Buckets: len(t.Owner), Base: slices.Min(t.Epoch)}
	for i, m := range t.Sessions {
		index[m.Session] = i + 1
		out.Sessions = append(out.Sessions, member(m))
	}
	last, moves := 0, 0
	for b, owner := range t.Owner {
		if owner != "" && index[owner] == 0 {
			return "", fmt.Errorf("bucket %d belongs to session %q, which has not joined", b, owner)
		}
		out.Owner = binary.AppendUvarint(out.Owner, uint64(index[owner]))        //nolint:gosec // An index.
		out.Epoch = binary.AppendUvarint(out.Epoch, uint64(t.Epoch[b]-out.Base)) //nolint:gosec // Base is the smallest.
		if to, moving := t.Moving[b]; moving {
			if owner == "" || owner == to || index[to] == 0 {
				return "", fmt.Errorf("bucket %d of session %q cannot move to session %q", b, owner, to)
			}
			out.Moving = binary.AppendUvarint(out.Moving, uint64(b-last))      //nolint:gosec // Ascending.
			out.Moving = binary.AppendUvarint(out.Moving, uint64(index[to]-1)) //nolint:gosec // An index.
			last = b
			moves++
		}
	}
	if moves != len(t.Moving) {
		return "", fmt.Errorf("of %d buckets that move, the table has %d", len(t.Moving), moves)
	}
	encoded, err := json.Marshal(out)
	if err != nil {
		return "", fmt.Errorf("encode the table: %w", err)
	}
	if len(encoded) > MaxText {
		return "", fmt.Errorf("the table has %d bytes, of which %d are allowed: use fewer buckets, or shorter names", len(encoded), MaxText)
	}
	return string(encoded), nil
}

// Decode reads what Encode wrote, and refuses everything else.
func Decode(encoded string) (*Table, error) {
	if len(encoded) > MaxText {
		return nil, fmt.Errorf("the table has %d bytes, of which %d are allowed", len(encoded), MaxText)
	}
	var in text
	if err := json.Unmarshal([]byte(encoded), &in); err != nil {
		return nil, fmt.Errorf("the table is no JSON of a table: %w", err)
	}
	if err := in.validate(); err != nil {
		return nil, fmt.Errorf("the table is not one that this version knows: %w", err)
	}
	t := New(in.Buckets, in.Gen)
	for _, m := range in.Sessions {
		if err := t.Join(Member(m)); err != nil {
			return nil, fmt.Errorf("the table's sessions: %w", err)
		}
	}
	for _, read := range []func(*Table) error{in.owners, in.epochs, in.moves} {
		if err := read(t); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (in *text) validate() error {
	switch {
	case in.Version != version:
		return fmt.Errorf("its version is %d, and not %d", in.Version, version)
	case in.Hash != hash:
		return fmt.Errorf("its hash is %q, and not %q", in.Hash, hash)
	case in.Buckets < 1 || in.Buckets > MaxBuckets:
		return fmt.Errorf("it has %d buckets, and not between 1 and %d", in.Buckets, MaxBuckets)
	case in.Gen < 0 || in.Gen > maxCount || in.Base < 0 || in.Base > maxCount:
		return fmt.Errorf("its gen is %d and its base %d, and not between 0 and 2^62", in.Gen, in.Base)
	case len(in.Sessions) > MaxSessions:
		return fmt.Errorf("it has %d sessions, and not at most %d", len(in.Sessions), MaxSessions)
	}
	return nil
}

// maxCount is how far anything is counted, so that adding two such numbers does not overflow.
const maxCount = 1 << 62

// MaxStart is up to where a table may begin to count, so that it never comes to its end.
const MaxStart = maxCount / 2

func (in *text) owners(t *Table) error {
	numbers := packed(in.Owner)
	for b := range t.Owner {
		i, err := numbers.next(len(t.Sessions))
		if err != nil {
			return fmt.Errorf("the table's owner of bucket %d: %w", b, err)
		}
		if i > 0 {
			t.Owner[b] = t.Sessions[i-1].Session
		}
	}
	return numbers.end("owners")
}

func (in *text) epochs(t *Table) error {
	numbers := packed(in.Epoch)
	for b := range t.Epoch {
		more, err := numbers.next(int(maxCount - in.Base))
		if err != nil {
			return fmt.Errorf("the table's epoch of bucket %d: %w", b, err)
		}
		t.Epoch[b] = in.Base + int64(more)
	}
	return numbers.end("epochs")
}

func (in *text) moves(t *Table) error {
	numbers := packed(in.Moving)
	for b := 0; len(numbers) > 0; {
		step, err := numbers.next(len(t.Owner) - 1 - b)
		if err != nil {
			return fmt.Errorf("the table's bucket that moves after bucket %d: %w", b, err)
		}
		b += step
		to, err := numbers.next(len(t.Sessions) - 1)
		if err != nil {
			return fmt.Errorf("the table's session that bucket %d moves to: %w", b, err)
		}
		if err := t.Move(b, t.Sessions[to].Session); err != nil {
			return fmt.Errorf("the table's moves: %w", err)
		}
	}
	return nil
}

// packed is a row of numbers.
type packed []byte

// next reads a number that is at most limit.
func (p *packed) next(limit int) (int, error) {
	n, size := binary.Uvarint(*p)
	switch {
	case size <= 0:
		return 0, errors.New("no number is there")
	case limit < 0 || n > uint64(limit):
		return 0, fmt.Errorf("%d is too large", n)
	}
	*p = (*p)[size:]
	return int(n), nil //nolint:gosec // limit is an int.
}

func (p *packed) end(of string) error {
	if len(*p) > 0 {
		return fmt.Errorf("the table has %d bytes too many of %s", len(*p), of)
	}
	return nil
}
