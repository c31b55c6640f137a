package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
)

const (
	pluginName    = "fleet.fleet-runtime.dev"
	pluginVersion = "v1"
	pluginKey     = pluginName + "/" + pluginVersion
)

// pluginsRoot is the folder in which kubebuilder looks for plugins: see getPluginsRoot in its package pkg/cli.
func pluginsRoot(system string) (string, error) {
	if system != "linux" && system != "darwin" {
		return "", fmt.Errorf("kubebuilder does not run on %s, but on linux and darwin alone: on Windows, use both in the subsystem for Linux", system)
	}
	if given := os.Getenv("EXTERNAL_PLUGINS_PATH"); given != "" {
		return given, nil
	}
	if config := os.Getenv("XDG_CONFIG_HOME"); config != "" {
		return filepath.Join(config, "kubebuilder", "plugins"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("finding the folder for kubebuilder's plugins: %w", err)
	}
	if system == "darwin" {
		return filepath.Join(home, "Library", "Application Support", "kubebuilder", "plugins"), nil
	}
	return filepath.Join(home, ".config", "kubebuilder", "plugins"), nil
}

// install copies this program to where kubebuilder looks for it, and returns the path. A copy outlasts what go run has built.
func install() (path string, err error) {
	root, err := pluginsRoot(runtime.GOOS)
	if err != nil {
		return "", err
	}
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding this program: %w", err)
	}
	folder := filepath.Join(root, pluginName, pluginVersion)
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return "", fmt.Errorf("making the plugin's folder: %w", err)
	}
	path = filepath.Join(folder, pluginName)
	if err := replace(path, self); err != nil {
		return "", fmt.Errorf("installing the plugin as %s: %w", path, err)
	}
	return path, nil
}

// replace puts a copy of a program in the place of what is there, all at once: that may be running.
func replace(path, program string) (err error) {
	from, err := os.Open(program) //nolint:gosec // it is this program
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	// kubebuilder takes each file of this folder for a plugin if the first part of its name is right, so this one is beside it.
	to, err := os.CreateTemp(filepath.Dir(filepath.Dir(path)), "new-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(to.Name()) }() // it is not there any more if all went well
	_, err = io.Copy(to, from)
	if err = errors.Join(err, to.Chmod(0o755), to.Close()); err != nil {
		return err
	}
	return os.Rename(to.Name(), path)
}
