package actors

import (
	"time"

	"github.com/swampd/swampd/messages"
)

// dismissTime is how long a worker that is told to go has to say that it has killed what it ran.
const dismissTime = 5 * time.Second

const timerDismiss = "dismiss"

// tokenGone ends what a token had admitted: it was revoked, or its time is over.
type tokenGone struct {
	token    string
	tokenGen uint32
	code     messages.Code
}

// tokenGoneNoted says that the worker is disconnected.
type tokenGoneNoted struct{ worker string }

// goodbyeHeard says that a worker has answered the goodbye: nothing of what it ran is left.
type goodbyeHeard struct{ session uint64 }

// dismissElapsed gives up waiting for that; dismissAgain tells the worker once more, after a panic of its actor.
type (
	dismissElapsed struct{}
	dismissAgain   struct{}
)

// tokenGone disconnects the worker if that token had admitted it, and tells it to go.
func (w workerState) tokenGone(c tokenGone, at moment) (workerState, decision) {
	noted := tell{tokenAddress(c.token), tokenGoneNoted{w.name}}
	if w.version == 0 { // it was here once
		return w, decision{effects: []effect{noted, leave{}}}
	}
	if !w.connected || w.token != c.token || w.generation != c.tokenGen {
		return w, decision{effects: []effect{noted}}
	}
	w.connected, w.goneAt, w.reason, w.dismissing = false, at.now, string(c.code), true
	w.bump()
	d := decision{writes: []write{w.write()}}
	d.then(w.dismiss(c.code)...)
	d.then(noted, w.idle())
	d.then(w.farewell()...)
	return w, d
}

// dismiss tells the worker to go, since its token is no longer good.
func (w workerState) dismiss(code messages.Code) []effect {
	return []effect{transmit{w.session, goodbye("revoked", code, w.tokenText(code))}, arm{timerDismiss, dismissTime, dismissElapsed{}}}
}

// dismissed decides on what ran under a token that is gone. A worker that has answered has killed it, so that it is lost
// without grace. One that could not be reached does not know, and its leases keep their grace: whatever the books say, it
// may be running them (rule P10).
func (w workerState) dismissed(session uint64, heard bool) (workerState, decision) {
	if !w.dismissing || session != w.session {
		return w, decision{}
	}
	w.dismissing = false
	code := messages.Code(w.reason)
	text := w.tokenText(code)
	d := decision{effects: []effect{disarm{timerDismiss}, hangUp{w.session, code, text}}}
	leases := sortedKeys(w.leases)
	if !heard {
		for _, id := range leases {
			d.then(tell{leaseAddress(id), leaseSocketLost{}})
		}
		return w, d
	}
	w.leases = nil
	for _, id := range leases {
		d.then(tell{leaseAddress(id), leaseLost{reason: text}})
	}
	w.dropClaims(&d)
	return w, d
}

func (w workerState) tokenText(code messages.Code) string {
	if code == messages.CodeTokenExpired {
		return "enrollment token " + w.token + " has expired"
	}
	return "enrollment token " + w.token + " was revoked"
}
