package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// asProgram lets the test be mcctl.
const asProgram = "TEST_AS_MCCTL"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// TestASecondSignalKills: what does not heed the first one, as reading the terminal, is not to keep people from their shell.
func TestASecondSignalKills(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "join", "east", "--rules", "-", "--server", "https://hub.example.com",
		"--member-server", "https://member.example.com", "--advertise-server", "https://member.example.com")
	cmd.Env = append(os.Environ(), asProgram+"=yes", "KUBECONFIG="+os.DevNull)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	rules, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// A pipe does not hold that much: once it is written, the program reads it, and waits for more.
	if _, err := rules.Write([]byte(strings.Repeat("# nothing\n", 50_000))); err != nil {
		t.Fatalf("it does not read the rules: %v: %s", err, errOut.String())
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // its state tells how it ended
		close(exited)
	}()
	again := time.NewTicker(100 * time.Millisecond) // two signals may arrive as one
	defer again.Stop()
	patience := time.NewTimer(20 * time.Second)
	defer patience.Stop()
	for {
		select {
		case <-again.C:
			if err := cmd.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
				t.Fatal(err)
			}
			continue
		case <-exited:
		case <-patience.C:
			_ = cmd.Process.Kill()
			t.Fatal("signals do not end it")
		}
		break
	}
	if status, is := cmd.ProcessState.Sys().(syscall.WaitStatus); !is || !status.Signaled() || status.Signal() != syscall.SIGINT {
		t.Errorf("it ended as %v: %s", cmd.ProcessState, errOut.String())
	}
}
