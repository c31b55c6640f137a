// Command record runs a command in a terminal of its own, and writes what it shows to a file in asciinema's format, version 2
// (https://docs.asciinema.org/manual/asciicast/v2/).
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/creack/pty"
)

// The size of the terminal, in characters.
const width, height = 100, 36

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: record FILE.cast FOLDER COMMAND [ARGUMENTS]")
		os.Exit(2)
	}
	if err := record(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

// record runs the command in the folder, to its end.
func record(path, folder string, command []string) error {
	file, err := os.Create(path) //nolint:gosec // the caller's own
	if err != nil {
		return err
	}
	cmd := exec.Command(command[0], command[1:]...) //nolint:gosec,noctx // the caller's own, and it ends by itself
	cmd.Dir = folder
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Cols: width, Rows: height})
	if err != nil {
		return errors.Join(fmt.Errorf("start %s: %w", command[0], err), file.Close())
	}
	err = follow(io.TeeReader(terminal, os.Stdout), json.NewEncoder(file), strings.Join(command, " "))
	return errors.Join(err, cmd.Wait(), terminal.Close(), file.Close())
}

// follow writes an event for each piece of output, with the seconds since the first one began.
func follow(output io.Reader, to *json.Encoder, title string) error {
	if err := to.Encode(map[string]any{"version": 2, "width": width, "height": height, "title": title}); err != nil {
		return err
	}
	began := time.Now()
	var text []byte
	buffer := make([]byte, 4096)
	for {
		n, err := output.Read(buffer)
		text = append(text, buffer[:n]...)
		whole := wholeCharacters(text)
		if len(whole) > 0 {
			seconds := time.Since(began).Round(time.Millisecond).Seconds()
			if err := to.Encode([]any{seconds, "o", string(whole)}); err != nil {
				return err
			}
			text = text[len(whole):]
		}
		// A terminal says EIO when its last program has ended.
		if pathErr := (*fs.PathError)(nil); errors.Is(err, io.EOF) || errors.As(err, &pathErr) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// wholeCharacters is the text without a character at its end of which a part is still to come.
func wholeCharacters(text []byte) []byte {
	for i := 1; i <= min(utf8.UTFMax, len(text)); i++ {
		if last := text[len(text)-i:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				return text[:len(text)-i]
			}
			break
		}
	}
	return text
}
