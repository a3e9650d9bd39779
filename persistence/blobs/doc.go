// Package blobs keeps bodies of artifacts as files, in the folder of a store on disk.
//
// A body is <2 digits>/<key>, the digits being the first two of the key. While it is written it has the suffix .tmp; it is
// synced, gets its name, and the folder is synced, in that order, so that a name is a whole body. An extension goes on in
// the file itself, behind what a record names.
//
// It imports persistence, for the interface that it implements; badgerstore uses it.
package blobs
