package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/kubebuilder/v4/pkg/plugin/external"

	"github.com/fleet-runtime/fleet-runtime/cmd/kubebuilder-fleet/internal/project"
)

const apiVersion = "v1alpha1"

// serve answers one request. What is wrong with it is said in the answer, since kubebuilder does not read that of a program that
// fails. The error is one of writing it.
func serve(in io.Reader, out, log io.Writer) error {
	var req external.PluginRequest
	res := &external.PluginResponse{APIVersion: apiVersion, Universe: map[string]string{}}
	err := json.NewDecoder(in).Decode(&req)
	if err != nil {
		err = fmt.Errorf("reading the request on standard input, which kubebuilder writes: %w", err)
	} else {
		res.Command = req.Command
		err = answer(&req, res, log)
	}
	if err != nil {
		res.Universe, res.Error, res.ErrorMsgs = nil, true, []string{err.Error()}
	}
	return json.NewEncoder(out).Encode(res)
}

func answer(req *external.PluginRequest, res *external.PluginResponse, log io.Writer) error {
	if req.APIVersion != "" && req.APIVersion != apiVersion {
		return fmt.Errorf("kubebuilder's protocol %s is not known; %s is", req.APIVersion, apiVersion)
	}
	switch req.Command {
	case "flags":
		res.Flags = flagsOf(req.Args)
		return nil
	case "metadata":
		res.Metadata = metadataOf(req.Args)
		return nil
	}
	p, err := project.New(req.Universe)
	if err != nil {
		return err
	}
	if err := carryOut(p, req); err != nil {
		return err
	}
	res.Universe = p.Changed()
	return report(log, req.Command, p)
}

func carryOut(p *project.Project, req *external.PluginRequest) error {
	opts, err := parse(req.Command, req.Args)
	if err != nil {
		return err
	}
	switch req.Command {
	case "init", "edit":
		return p.Move(opts.Options)
	case "create api":
		return p.AddAPI(opts.kind)
	case "create webhook":
		return p.AddWebhook()
	default:
		return fmt.Errorf("kubebuilder's command %q is not known", req.Command)
	}
}

// report says what is left to a person, and for a project that there was also which files change.
func report(log io.Writer, command string, p *project.Project) error {
	var lines []string
	moves := command == "edit"
	if moves {
		for _, name := range slices.Sorted(maps.Keys(p.Changed())) {
			lines = append(lines, "changed: "+name)
		}
		if len(lines) == 0 {
			lines = append(lines, "Nothing is to be changed: the project is moved already.")
		}
	}
	if notes := p.Notes(); len(notes) > 0 {
		lines = append(lines, "Left to you:")
		for _, note := range notes {
			lines = append(lines, note.String())
		}
	}
	if moves {
		lines = append(lines, "Next: go mod tidy && make manifests generate")
	}
	if len(lines) == 0 {
		return nil
	}
	_, err := fmt.Fprintln(log, strings.Join(lines, "\n"))
	return err
}
