package persistence

import (
	"fmt"
	"strings"
)

// StepID is the id of a step's record: under its run, in ordinal order.
func StepID(run string, ordinal uint32) string { return fmt.Sprintf("%s/%08d", run, ordinal) }

// LeaseID is the id of a lease's record.
func LeaseID(dispatch string, generation uint32) string {
	return fmt.Sprintf("%s/%d", dispatch, generation)
}

// BindingID is the id of the binding of one machine to one token.
func BindingID(token string, generation uint32, machine string) string {
	return fmt.Sprintf("%s/%d/%s", token, generation, machine)
}

// ArtifactVersionID is the id of one version of an artifact: in the order of names, and of numbers below a name. Names
// hold no zero byte.
func ArtifactVersionID(name string, version uint32) string {
	return fmt.Sprintf("%s%010d", ArtifactVersionPrefix(name), version)
}

// ArtifactVersionPrefix begins the ids of all versions of an artifact, and of no other's.
func ArtifactVersionPrefix(name string) string { return name + "\x00" }

// RunOf is the run of a dispatch, of a lease or of a pending dispatch, whose ids begin with it: <run>.<ordinal>.<n> and
// what follows a slash. It is empty where the id is none of these.
func RunOf(id string) string {
	id, _, _ = strings.Cut(id, "/")
	for range 2 {
		id = id[:max(strings.LastIndexByte(id, '.'), 0)]
	}
	return id
}
