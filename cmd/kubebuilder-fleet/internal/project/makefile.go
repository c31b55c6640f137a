package project

import (
	"strings"

	"golang.org/x/mod/semver"
)

const makefile = "Makefile"

// controllerToolsVersion is one that knows the Kubernetes of controllerRuntimeVersion.
const controllerToolsVersion = "v0.23.0"

const membersTarget = `# The contexts of the members in your kubeconfig: make install-members MEMBERS="east west"
MEMBERS ?=

.PHONY: install-members
install-members: manifests ## Apply config/member in each of MEMBERS: the CRDs, a service account, and its rights.
	@test -n "$(MEMBERS)" || { echo >&2 'make: say where: make install-members MEMBERS="east west"'; exit 1; }
	@for member in $(MEMBERS); do "$(KUBECTL)" --context "$$member" apply -k config/member || exit 1; done

`

const dependencies = "##@ Dependencies\n"

// moveMakefile lets the Makefile's targets know the folders of the hub and of members.
func (p *Project) moveMakefile() {
	text, ok := p.read(makefile)
	if !ok {
		p.notef(makefile, 0, "it is missing: controller-gen is to run with output:rbac:artifacts:config=config/member, and config/hub to be deployed")
		return
	}
	lines := strings.SplitAfter(text, "\n")
	hasRoles, deploys := false, false
	for i, line := range lines {
		if strings.HasPrefix(line, "\t") && strings.Contains(line, "rbac:roleName=") {
			hasRoles = true
			if !strings.Contains(line, "output:rbac:") {
				lines[i] = strings.TrimSuffix(line, "\n") + " output:rbac:artifacts:config=config/member\n"
			}
		}
		if strings.HasPrefix(line, "\t") && strings.Contains(line, "build config/") {
			lines[i] = strings.Replace(line, "build config/default", "build config/hub", 1)
			deploys = deploys || strings.Contains(lines[i], "build config/hub")
		}
		lines[i] = raiseControllerTools(lines[i])
	}
	text = strings.Join(lines, "")
	if !strings.Contains(text, "\ninstall-members:") {
		text = insertBefore(text, dependencies, membersTarget)
	}
	p.write(makefile, text)
	if !hasRoles {
		p.notef(makefile, 0, "controller-gen is to run with output:rbac:artifacts:config=config/member")
	}
	if !deploys {
		p.notef(makefile, 0, "the target deploy is to build config/hub")
	}
}

func raiseControllerTools(line string) string {
	const variable = "CONTROLLER_TOOLS_VERSION ?= "
	version, found := strings.CutPrefix(strings.TrimSpace(line), variable)
	if found && semver.Compare(version, controllerToolsVersion) < 0 {
		return variable + controllerToolsVersion + "\n"
	}
	return line
}

// insertBefore puts a text before a line, or at the end if there is no such line.
func insertBefore(text, line, what string) string {
	if before, after, found := strings.Cut(text, line); found {
		return before + what + line + after
	}
	return strings.TrimSuffix(text, "\n") + "\n\n" + strings.TrimSuffix(what, "\n")
}
