// Package sim plays random scenarios of an orchestrator and its workers in virtual time, and looks whether everything that
// must hold does.
//
// A seed makes a [Scenario]: machines, and a list of operations. Clients submit runs, repeat themselves, cancel, pause,
// drain and revoke; workers start, refuse, hang, die, leave and lose their connection; actors panic, the orchestrator
// dies at any of its points and in its boots, and its disk is slow, full or broken. What machines decide by chance, how
// long a step takes or whether it is refused, follows from the seed and the name of what is decided, never from the
// order in which it is asked. So a scenario that has lost some of its operations decides the rest as before, and [Shrink]
// can find the few that it takes to fail.
//
// # What is checked
//
// All the time: a dispatch is durable before it is sent, and goes to a worker that fits and has a slot; no step runs twice
// at once; what has ended never changes again; the orchestrator's log has no error that the scenario did not make, its
// auditor's findings included. Once the faults are over and every machine is up: every run ends, and every question is
// answered. At the end: the events of each run are those that its follower was told, and agree with what the workers did: each
// execution with a dispatch, no second one without a loss, no success without one, no step before what it depends on,
// nothing handed out after a cancel. Then the audit of testkit, and nothing may be left of the actors and goroutines.
//
// # How a seed replays
//
// The clock is virtual, and each actor waits before each command until an instant of its own, which differs from all
// others in its nanoseconds. So the order of what happens follows from the seed, whatever the scheduler of the Go runtime
// does, on any number of processors. What remains is what happens at one and the same instant: a goroutine that waits for two
// things at once may see either first, and what many waited for goes on together. Where that was seen to matter, one of
// the two was moved.
//
// It imports testkit, actors, persistence and messages. Only its own tests import it.
package sim
