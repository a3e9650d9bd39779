// Package journaltest is the conformance suite of the journal. [Exercise] holds every engine to what the interface
// promises; [FailNth] is a journal whose Nth commit fails.
//
// It imports persistence and messages, and testing: only tests import it.
//
//	func TestConformance(t *testing.T) {
//		journaltest.Exercise(t, journaltest.Harness{Open: …, Reopen: …, Damage: …})
//	}
package journaltest
