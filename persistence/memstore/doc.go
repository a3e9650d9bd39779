// Package memstore is the journal in memory, for tests: the same committer as on disk, over an ordered map.
//
// It can do what a disk does to a process, at will: [Options.Before] and [Options.After] see each batch and may fail or
// delay it, [Store.SetSpace] fills the disk, and [Store.Crash] is the end of the process: what was applied survives in a
// [Snapshot], the old handle is fenced, and [Open] boots the next process from it. [Snapshot.Behind] is a disk that has lost the
// last batches.
//
// It imports persistence; testkit and tests import it.
//
//	store, err := memstore.New(memstore.Options{})
//	…
//	next, err := memstore.Open(store.Crash(), memstore.Options{})
package memstore
