module github.com/fleet-runtime/fleet-runtime/hack/assets

go 1.26.0

require github.com/gofrs/flock v0.13.1

require golang.org/x/sys v0.47.0 // indirect
