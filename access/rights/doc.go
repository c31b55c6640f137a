// Package rights compares what rules of RBAC give with what is needed, and asks an API server what the caller lacks.
//
// A [Right] is the smallest part of a rule: one verb on one resource, for one name and in one namespace, or for and in all.
// [Of] takes rules apart, [Rules] puts them together, [Grants] reads manifests, [Missing] compares, [Refused] asks what the caller may
// not do, and [Lacking] what it may not give.
package rights
