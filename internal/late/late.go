// Package late says how long providers may take to report the members that there are.
package late

import "time"

// Most is how long a provider may take after a start until it has reported all members.
const Most = time.Minute
