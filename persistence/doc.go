// Package persistence defines the journal: the durable store of records, event streams and step output.
//
// A record is the snapshot of one actor. It is written by that actor alone (rule A1), in a [Commit] that names the
// version it replaces, and nobody is told of it before the commit has returned (rule A2). Whatever must agree is
// written in one commit (rule A7).
//
// The package itself holds the interface, the errors, the record's envelope and the committer that joins what many
// actors wait for. Engines stand in subpackages: badgerstore for a directory on disk, memstore for tests; journaltest
// is the suite that every engine passes. A backup is a stream of a form of its own, of which any engine can be restored.
// It may import messages only. Package actors codes against the interface; cmd and testkit choose the engine.
//
//	seqs, err := journal.Commit(ctx, persistence.Commit{
//		Puts:    []persistence.Put{{Kind: persistence.KindRun, ID: id, Expect: 0, State: "running", Body: body}},
//		Appends: []persistence.Append{{Stream: id, Body: event}},
//	})
package persistence
