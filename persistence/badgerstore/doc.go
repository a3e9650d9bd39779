// Package badgerstore is the journal in a directory: package persistence's committer over Badger, and logs of output
// beside it.
//
//	store.json   what the store is: format, id, generation; written by rename, so it is whole or not there
//	lock         held while a process has the store open; names its pid
//	head         the number and hash of the last batch, written after each one without sync
//	journal/     Badger's own files
//	output/      one append-only log for each dispatch
//
// Badger opens a store whose MANIFEST was cut as an empty one, drops the end of a damaged log in silence, and kills the
// process when the disk is full. So [Open] looks at its files before it does (manifest.go, tables.go), compares what it
// found with store.json and head afterwards, and the store watches the free space (space.go). [Check] looks at all of a
// store that nobody has open, [Restore] makes one from a backup, whole or not at all.
//
// It imports persistence and messages, and is the only package that imports Badger. cmd imports it.
//
//	store, err := badgerstore.Open(badgerstore.Config{Dir: dir, Logger: logger})
package badgerstore
