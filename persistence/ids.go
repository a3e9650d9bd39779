package persistence

import "fmt"

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
