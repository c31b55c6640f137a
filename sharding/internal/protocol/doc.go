// Package protocol is what replicas agree on when they share the members of a fleet, as pure functions: no clock, no client.
// Package sharding runs it against Leases of the local cluster.
//
// # What there is
//
// A member has a key, and its key is in a bucket (Bucket). A [Table] says which session owns which bucket. A session is one start of a
// replica: it has a Lease of its own, of a name that never comes back, and renews that. There is one table for all, in one
// object. It is written at the resourceVersion that it was read at, so that all its versions are one after the other.
//
// A replica works on a bucket if the table says so ([Table.Holds]), as far as the replica has seen it, and if its session is valid: less
// than V has passed since it sent a renewal of which it knows that it worked. Others believe a session dead only after
// they have seen no renewal for D, which is longer than V.
//
// # What can happen to a bucket
//
//	nobody owns it         Claim        -> a owns it                   any planner
//	a owns it              Move         -> a owns it, moving to b      any planner
//	a owns it, moving to b Acknowledge  -> b owns it                   a alone, after it has drained the bucket
//	a owns it, moving to b Cancel       -> a owns it                   any planner
//	a owns it              Acknowledge  -> nobody owns it              a alone, when it leaves
//	a owns it              Bury(a)      -> nobody owns it              any planner, after a was silent for D and fenced
//
// So a bucket is taken from its owner by the owner, or after the owner can work no more. Each new owner has a greater epoch.
//
// # Why no two replicas write
//
// Say that a works on a bucket, and that the table says b owns it. Then a has not acknowledged, since it drains first and then works on
// the bucket no more: its view does not go back ([Table.Newer]). So somebody buried a. That was after a had been silent for
// D ([Judge]), and V is over before. It was also after the Lease had been fenced, so that a can never renew it: a is not
// valid, and never will be. To fence is to empty the holder at the version that was silent. If the API server refuses that,
// there was a renewal, and a lives.
//
// It does not matter who plans, how many plan, or how wrong they are. A Lease that is gone is no proof before it was silent for D
// either: somebody may have deleted it while its session is valid.
//
// # Why all is owned again
//
// Every replica can do everything. [Table.Rank] says for how long each waits for those before it, which only spares them conflicts. A session
// that is not valid writes neither its joining nor plans: it may be buried without knowing it, and would come back again and
// again. A session that is not in the table any more, or whose Lease is fenced, is lost for ever; its replica begins another.
// A session that leaves gives up what it owns without waiting for a plan.
//
// The tests of this package explore all that can happen to a few replicas, with these functions, and find both to be true. They say
// what is abstract, and which faults there are.
//
// # What buckets weigh
//
// Labels say it, or [Costs] does: each replica measures what it holds, and hears what the others say of theirs. That decides balance
// alone, so it may be wrong, late, or different for each replica. [Weigh] bounds what comes of it, and [Allowance] how fast.
//
// # How to write
//
//	next := read.Next()                        // one Gen more
//	err := next.Acknowledge(bucket, session)   // transitions
//	text, err := next.Encode()                 // and an update at the resourceVersion of what was read
//
// A planner adds Bury for those that Judge allows, and then [Plan], which returns the table to write and why each bucket moves.
package protocol
