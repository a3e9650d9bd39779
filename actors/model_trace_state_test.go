package actors

import (
	"fmt"
	"strings"
)

// describe is a batch of commands for the trace of a failure.
func describe(cmds []any) string {
	var names []string
	for _, c := range cmds {
		text := strings.TrimPrefix(fmt.Sprintf("%T", c), "actors.")
		switch c := c.(type) {
		case leaseFrame:
			text = "leaseFrame " + frameKind(c.frame)
		case leaseHere:
			text = fmt.Sprintf("leaseHere{%s dispatch:%v}", c.lease, c.dispatch != nil)
		case leaseEnded:
			text = fmt.Sprintf("leaseEnded{%s %s %s}", c.lease, c.outcome.GetStatus(), c.outcome.GetError())
		case leaseLost, leaseNoted, leaseUp, slotNoted, releaseSlot, withdrawStep, queueDeadline, offerNoted, assignStep, workerNoted,
			cancelLease, cancelDispatch, holdSlot, sessionEnded, leaseOver:
			text = fmt.Sprintf("%s%+v", text, c)
		case workerKnown:
			text = fmt.Sprintf("workerKnown{%s v%d %s}", c.name, c.version, c.status)
		case offerStep:
			text = fmt.Sprintf("offerStep{%s parked:%v}", c.queueID, c.parked)
		}
		names = append(names, text)
	}
	return strings.Join(names, ", ")
}

func faultName(f fault) string {
	return [...]string{"", ", panics before the commit", ", panics after the commit", ", panics between effects"}[f]
}
