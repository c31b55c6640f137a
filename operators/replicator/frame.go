package main

import (
	"encoding/binary"
	"fmt"
	"io"
)

// A frame is what the program and a process of its overrides send each other: what it is, the length of its content in four bytes, and that.
type kindOfFrame byte

const (
	frameReady  kindOfFrame = iota // the process has limits, and waits
	frameJob                       // JSON of a job, for all objects that follow
	frameObject                    // JSON of an object, which gets an answer
	frameResult                    // JSON of the object with its overrides
	frameError                     // text of the error instead
)

const headerBytes = 5

func writeFrame(to io.Writer, kind kindOfFrame, content []byte) error {
	header := binary.BigEndian.AppendUint32([]byte{byte(kind)}, uint32(len(content))) //nolint:gosec // what is sent has some megabytes
	if _, err := to.Write(header); err != nil {
		return err
	}
	_, err := to.Write(content)
	return err
}

// readFrame returns a frame whose content has no more than most bytes.
func readFrame(from io.Reader, most uint32) (kindOfFrame, []byte, error) {
	var header [headerBytes]byte
	if _, err := io.ReadFull(from, header[:]); err != nil {
		return 0, nil, err
	}
	length := binary.BigEndian.Uint32(header[1:])
	if length > most {
		return 0, nil, fmt.Errorf("a frame has %d bytes: %w", length, errTooMuch)
	}
	content := make([]byte, length)
	_, err := io.ReadFull(from, content)
	return kindOfFrame(header[0]), content, err
}
