package fleet

import (
	"net/url"

	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
)

// serverLocked returns the address of the member's API server without what may be secret, empty if it is not known.
func (m *member) serverLocked() string {
	if m.described.Config == nil {
		return m.server // of the last attempt
	}
	return m.described.server()
}

// server returns the address in a description's config.
func (m Member) server() string {
	if m.Config == nil {
		return ""
	}
	server, err := url.Parse(m.Config.Host)
	if err != nil {
		return ""
	}
	server.User, server.RawQuery, server.Fragment = nil, "", ""
	return oneline.Text(server.String(), maxMessage)
}
