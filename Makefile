# What can be passed on: make demo ARGS=-stay, make test PACKAGES=./fleet/... TESTARGS="-run TestDrain -v"
ARGS     ?=
PACKAGES ?= ./...
TESTARGS ?=
# What make release makes.
VERSION  ?= v0.1.0

GO   ?= go
# The linters load packages as the tests do, so that each is compiled once for both.
LINT  = GOFLAGS="$(shell $(GO) env GOFLAGS) $(BUILDFLAGS)" "$$($(GO) tool -n -modfile=$(CURDIR)/tools.mod golangci-lint)"
# The other modules of this repository, besides the one in its root.
MODULES = cmd/kubebuilder-fleet cmd/mcctl hack/assets hack/pictures hack/release examples/operator operators/replicator providers/upstream telemetry test/bench/peers $(GINKGO)
# Those with suites of Ginkgo, which refuses -parallel.
GINKGO = test/kubebuilder/before test/kubebuilder/after
# What kind's nodes are made of, where there is no registry: tidied, and built by make e2e-kind alone, since it takes minutes.
NODE = hack/node
# Module files of another name: of the linters, of what mutates, of what writes code for kinds, of the control plane's programs, and of an older kubebuilder.
MODFILES = tools.mod hack/mutants.mod hack/generate.mod hack/assets/controlplane.mod cmd/kubebuilder-fleet/oldest.mod
MUTATE = $(GO) tool -modfile=$(CURDIR)/hack/mutants.mod gremlins unleash --config $(CURDIR)/hack/mutants.yaml
# What make mutants is about by default, the quick ones first: fleet alone takes hours.
CORE = internal/retry internal/oneline internal/delivery internal/clientmetrics mcreconcile mchandler mcsource mcqueue \
	internal/informer mcbuilder internal/pulse internal/restmapper fleet

# Of all packages, those come first, one after the other, that keep both cores busy by themselves: side by side they take as long, and
# members time out. Of the others, those that take longest come first, so that none of them is left alone at the end.
BUSY   = test/e2e mcowner/dependents
OTHERS = ./mctest ./examples/quickstart ./test/replicas $(filter-out $(addprefix %/,$(BUSY)),$(shell $(GO) list ./...))

# Two packages are tested side by side: tests of replicas run ten processes at once, and a third package beside them makes members
# time out. Nobody debugs these binaries, and without DWARF they link faster. The linters vet.
TESTFLAGS = -p 2 -parallel 4 -timeout 20m -vet=off -ldflags=-w $(BUILDFLAGS)
# Without its folder in them, what was compiled in one checkout is good for the next, wherever that is.
BUILDFLAGS = -trimpath $(RACE)
# On Linux the race detector needs a C compiler. The go command says CGO_ENABLED=0 if there is none.
RACE = $(if $(filter linux/0,$(shell $(GO) env GOOS)/$(shell $(GO) env CGO_ENABLED)),,-race)

# with_assets runs a command with the programs of a control plane.
with_assets = assets="$$($(GO) run -C hack/assets .)" && KUBEBUILDER_ASSETS="$$assets"

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this help.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: go ## Run examples/quickstart against a local cluster and three members. ARGS are passed to it.
	@$(with_assets) $(GO) run ./examples/quickstart $(ARGS)

# What make generate draws; the machine should be quiet meanwhile.
.PHONY: record
record: go assets ## Record the demo for the README.
	@MAKEFLAGS= MAKELEVEL= $(GO) run -C hack/pictures ./record $(CURDIR)/docs/pictures/demo.cast $(CURDIR) make demo

.PHONY: test
test: go ## Run all tests, unit and end-to-end, with the race detector. PACKAGES and TESTARGS narrow it down.
	@test -n "$(RACE)" || echo >&2 "make: no C compiler (gcc or clang) was found, or CGO_ENABLED=0 is set:" \
		"the tests run WITHOUT the race detector and will not notice data races"
	@$(with_assets) && export KUBEBUILDER_ASSETS && $(if $(filter ./...,$(PACKAGES)), \
		{ busy=0; for package in $(BUSY); do $(GO) test $(TESTFLAGS) $(TESTARGS) ./$$package || busy=$$?; done; \
		$(GO) test $(TESTFLAGS) $(TESTARGS) $(OTHERS) && exit $$busy; }, \
		$(GO) test $(TESTFLAGS) $(TESTARGS) $(PACKAGES))
	@$(with_assets) && export KUBEBUILDER_ASSETS && \
		for module in $(filter-out $(GINKGO),$(MODULES)); do $(GO) test -C $$module $(TESTFLAGS) $(TESTARGS) ./... || exit 1; done && \
		for module in $(GINKGO); do $(GO) test -C $$module $(subst -parallel 4,,$(TESTFLAGS)) $(TESTARGS) ./... || exit 1; done

# Without a container engine, one is made, and an image of nodes. There the command is in a network without a way out.
KIND = $(GO) test -count=1 -v -vet=off -ldflags=-w -timeout 60m ./test/kind
# With OPTIONAL=yes, a machine that cannot is none that fails.
.PHONY: e2e-kind
e2e-kind: go ## Deploy an operator into real kind clusters, and test what becomes of it. Without Docker or Podman: as root, on Debian.
	@$(with_assets) && export KUBEBUILDER_ASSETS E2E_KIND=yes CGO_ENABLED=0 && \
		for engine in docker nerdctl finch podman; do $$engine ps >/dev/null 2>&1 && exec $(KIND); done; \
		code=0; hack/kind-without-registry.sh $(KIND) || code=$$?; \
		test "$$code" = 77 && test -n "$(OPTIONAL)" || exit "$$code"; \
		echo "make: SKIPPED: NO TEST OF KIND CLUSTERS HAS RUN ON THIS MACHINE. The reason is above, and CONTRIBUTING.md says what they need." >&2

# One test after the other, so that nothing else keeps the machine busy.
.PHONY: prompt
prompt: go ## Test that programs react as soon as they promise, on a machine that does nothing else.
	@$(with_assets) PROMPT=yes $(GO) test -p 1 -parallel 1 -count=1 -timeout 60m -vet=off -ldflags=-w $(BUILDFLAGS) $(TESTARGS) ./examples/... && \
		$(with_assets) PROMPT=yes $(GO) test -parallel 1 -count=1 -timeout 20m -vet=off -ldflags=-w $(BUILDFLAGS) $(TESTARGS) \
		-run 'TestHelloWorld|TestParentsAndChildren|TestMembersSay' ./test/e2e && \
		$(with_assets) PROMPT=yes $(GO) test -parallel 1 -count=1 -timeout 20m -vet=off -ldflags=-w $(BUILDFLAGS) $(TESTARGS) \
		-run 'TestAnImportGivesAnAccountOfAnotherCluster' ./access && \
		$(with_assets) PROMPT=yes $(GO) test -C cmd/mcctl -parallel 1 -count=1 -timeout 20m -vet=off -ldflags=-w $(BUILDFLAGS) $(TESTARGS) \
		-run 'TestAClusterJoinsAndLeavesAFleetThatRuns' ./internal/command

.PHONY: bench
bench: go ## Measure, beside a peer in the same run. ARGS choose tables (see test/bench).
	@$(with_assets) $(GO) run ./test/bench $(ARGS)

.PHONY: release
release: go ## Make what v0.1.0 would consist of, in dist/. VERSION is another, ARGS are passed on. Nothing is pushed.
	@$(GO) run -C hack/release . -version $(VERSION) $(ARGS)

# Without vet and debugging information, each mutant is built in half the time.
.PHONY: mutants
mutants: go ## Mutate the core packages, and show the mutants that their tests do not notice. PACKAGES and TESTARGS narrow it down.
	@failed=; for package in $(if $(filter ./...,$(PACKAGES)),$(CORE:%=./%),$(PACKAGES)); do echo "$$package"; \
		$(with_assets) GOFLAGS="-vet=off -ldflags=-w $(TESTARGS)" $(MUTATE) "$$package" || failed="$$failed $$package"; \
	done; test -z "$$failed" || { echo >&2 "make: too many mutants went unnoticed in:$$failed"; exit 1; }

.PHONY: lint
lint: go ## Lint every module.
	$(LINT) run
	@for module in $(MODULES); do (set -x; cd $$module && $(LINT) run) || exit 1; done

.PHONY: verify
verify: go tidy generate format ## Bring modules, generated files and formatting up to date; fail if that changes anything.
	@git diff --exit-code || { echo >&2 "make: commit the changes above"; exit 1; }
	@untracked="$$(git ls-files --others --exclude-standard)"; test -z "$$untracked" || \
		{ echo >&2 "make: commit, remove or ignore these files: $$untracked"; exit 1; }

.PHONY: tidy
tidy: go
	$(GO) mod tidy
	@for module in $(MODULES) $(NODE); do (set -x; $(GO) -C $$module mod tidy) || exit 1; done
	@# These are tidied as the go.mod of a folder of their own: here they would be about the packages beside them.
	@for file in $(MODFILES); do \
		folder="$$(mktemp -d)" && cp $$file "$$folder/go.mod" && cp $${file%mod}sum "$$folder/go.sum" && \
		(set -x; $(GO) -C "$$folder" mod tidy) && \
		cp "$$folder/go.mod" $$file && cp "$$folder/go.sum" $${file%mod}sum && rm -r "$$folder" || exit 1; \
	done

.PHONY: generate
generate: go
	$(GO) generate ./...
	$(GO) generate -C hack/pictures ./...
	$(GO) generate -C operators/replicator ./...

.PHONY: format
format: go
	$(LINT) fmt
	@for module in $(MODULES); do (cd $$module && $(LINT) fmt) || exit 1; done

.PHONY: assets
assets: go ## Provide the programs of a control plane (etcd, kube-apiserver, ...) and print their folder.
	@$(GO) run -C hack/assets .

# Any Go since 1.21 downloads the version that go.mod asks for, unless GOTOOLCHAIN forbids it.
.PHONY: go
go:
	@command -v $(GO) >/dev/null || { echo >&2 "make: Go is missing; see https://go.dev/doc/install"; exit 1; }
	@$(GO) list -m >/dev/null || { echo >&2 "make: this needs Go $$(sed -n 's/^go //p' go.mod) or newer, and $$($(GO) version)" \
		"cannot be used; see https://go.dev/doc/install"; exit 1; }
