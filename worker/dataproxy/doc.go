// Package dataproxy is a step's way to the data plane: a socket of its worker.
//
// A step never talks to the orchestrator itself. Its credential may be replaced while it runs, when an orchestrator that was
// restarted adopts it, and the orchestrator may be away for a moment. A [Forwarder] attaches the credential that holds now,
// repeats what is safe to repeat until it is answered, and goes on with an answer that broke off in its middle; a [Socket]
// puts it where any HTTP client of the step finds it. What is no matter of data is answered 404.
//
// It imports messages, and may be imported by worker and by what may import worker. A Forwarder has no goroutine of its own;
// those of a Socket end with its Close.
//
//	f, err := dataproxy.New(dataproxy.Config{Base: base, Transport: transport, Credential: credential, Patience: patience, SpoolDir: dir})
//	if err != nil {
//		return err
//	}
//	s, err := dataproxy.Listen(f, path)
//	if err != nil {
//		return err
//	}
//	defer s.Close()
package dataproxy
