// Package messages is the vocabulary of swampd: the frames of the wire, the durable records, placements, states,
// error codes, verbs, and the words that logs use.
//
// It is a leaf: it imports nothing of this module, and every other package may import it. Frames and records are
// protobuf messages (frames.proto, records.proto; the generated code stands beside them). Fields are added, never
// renumbered and never reused, so that what was written before stays readable; the version of the wire is one integer
// whose meaning is pinned to a digest by a test (see [ProtocolVersion]).
//
// A placement is matched in one place:
//
//	verdict := placement.Match(candidate)
//	if !verdict.OK {
//		fmt.Println(verdict.Lacks)
//	}
package messages
