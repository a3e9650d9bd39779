// Package gateway is the edge of the orchestrator: one listener that carries the control plane of workers and clients
// over WebSocket, every verb of a client as POST /v1/rpc/<verb>, the probes and the metrics.
//
// It decides nothing. A socket becomes an [actors.Conn], each of its frames goes to the session that the orchestrator made
// for it, and what the session sends goes out in the coding of its question. docs/protocol.md describes the wire for
// those who write a peer.
//
// # Goroutines
//
// A socket has two: one reads, decodes and hands to the session; one writes to the network whatever has been queued
// meanwhile, so that many frames share a system call and nobody who sends ever waits for a peer. A third lives only for
// the closing handshake or for a ping. One more, for the whole server, judges which peers have fallen silent. All of them
// belong to the [Server]: Shutdown waits for them.
//
// # Imports
//
// gateway imports messages and actors. Only cmd and testkit import it.
package gateway
