// Package embedding is how somebody else's project tests a workflow of its own: the workflow stands in a file, what its
// steps do is a Go model, and the test plays both on the real orchestrator, in memory and in virtual time.
//
// Nothing here is special to this module: a project of its own imports testkit and worker in the same way.
package embedding
