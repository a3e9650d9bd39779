// Package actors is the orchestrator: the actors that own runs, steps, leases, workers, tokens and the queue, and the
// pure state machines that they run.
//
//	swampd                       root: starts its children in order, restarts them with backoff, stops them in reverse
//	├─ scheduler                 pool index, demand classes, reservations, deadlines, why-waiting
//	├─ fleet                     routes to worker/<name>
//	├─ tokens                    routes to token/<name>
//	├─ runs                      routes to run/<id>, each over its step/<ordinal> children
//	├─ leases                    routes to lease/<dispatch>/<generation>
//	└─ sessions                  session/<n>, one per socket
//
// # The four things an actor does
//
// Each machine has two pure functions in its *_state.go file: a transition (state, command, moment) → decision, and
// resume (state) → what is still owed. The actor around them decides, commits, acts, answers, in this order, and holds
// no decision about the domain (rules A1 to A10 and P1 to P12 in docs/rules.md).
//
// # Who may wait for whom
//
// Actors never ask actors. Only edges ask: the methods of [System] that take a context. An actor may block in the
// journal's Commit and nowhere else. The journal calls nobody back, and whoever serves data must never be waited for
// by a lease.
//
// The package imports messages, workflow and persistence (the interface). Gateway, testkit and cmd import it.
package actors
