// Package worker is the agent as a library: it dials an orchestrator, enrolls, runs the steps it is given, sends their
// output and results until they are durable, and leaves in an orderly way. Steps outlive the connection, but neither the
// process nor the time after which the orchestrator gives them to somebody else.
//
// It imports messages only, and may be imported by testkit and cmd, and by programs that embed a worker. Nothing here
// outlives the process but the machine id in the cache directory.
//
//	a, err := worker.New(worker.Config{URL: "ws://127.0.0.1:4000", Token: token, Concurrency: 4})
//	if err != nil {
//		return err
//	}
//	go func() { <-sigterm; a.Drain(worker.StopSignal) }()
//	reason, err := a.Run(ctx)
//
// The goroutines of an [Agent], each in a file of its own:
//
//	Run (agent_connect.go)    connects, enrolls, waits, connects again
//	serve (link.go)           one per connection: pings, notices death, ends the connection
//	read (link_read.go)       takes frames, decides under the agent's lock, never blocks on a step
//	write (link_write.go)     sends what the outbox has, as much as is there at once
//	step (dispatch.go)        one per dispatch: runs the step, and puts its output into its pipe
//	feed (pipe.go)            one per dispatch that has output on disk: moves it to the outbox as there is credit
//
// and of timers: flush and repeat (outbox.go), age (lifecycle.go), fenceOff (fence.go).
//
// A step reaches artifacts through a socket of its worker (dataplane.go, and package dataproxy), which lives as long as the
// dispatch and shows the credential of its latest adoption.
//
// What they decide by is apart from them and knows no lock, clock or socket: lifecycle_state.go (slots, and which dispatch
// is taken or adopted), lifecycle_leave_state.go (when, why and until when a worker leaves), link_state.go (backoff,
// liveness, promises), fence_state.go (until when a step may live without one), outbox_state.go and outbox_flow_state.go
// (order, credit, acknowledgements). Agent.mu guards them all. What runs between two connections, and what the next one
// makes of it, is in flight.go.
package worker
