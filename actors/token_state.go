package actors

import (
	"time"

	"github.com/swampd/swampd/messages"
)

const timerExpiry = "expiry"

// tokenState is an enrollment token with the machines that it has admitted. Redemption is its critical section: a token
// for three machines admits three, whatever races for it. It gathers, so that many that come at once share a commit.
//
//	none ─> unused ─> enrolled ─> expired | revoked ─> (created again, one generation up)
type tokenState struct {
	version uint64

	name       string
	generation uint32
	digest     []byte
	state      messages.TokenState
	createdAt  time.Time
	expiresAt  time.Time
	max        int32 // below 0: unlimited
	revokedAt  time.Time
	machines   map[string]string // machine id to worker name

	// Not durable.
	gone map[string]bool // workers that are known to be disconnected since the token ended
}

// createToken mints the token, by the digest of a secret that only its creator sees.
type createToken struct {
	digest   []byte
	duration time.Duration
	max      int32
	answer   *answer
}

// revokeToken takes the token back.
type revokeToken struct{ answer *answer }

// tokenIs answers createToken and revokeToken.
type tokenIs struct {
	state     messages.TokenState
	expiresAt time.Time
}

// redeemToken asks to be admitted.
type redeemToken struct {
	digest   []byte
	worker   string // the name that the machine gets where the token admits several
	session  address
	number   uint64
	request  string
	protocol int32
	params   *messages.EnrollParams
}

// redeemed tells a session how its enrollment fares at the token.
type redeemed struct {
	request string
	worker  string
	fault   *messages.Fault
}

// expiryElapsed says that the token's time may be over. Only the wall clock decides.
type expiryElapsed struct{}

// stepToken is the transition of a token: a batch of commands in, one decision out.
func stepToken(t tokenState, batch []any, at moment) (tokenState, decision) {
	var d decision
	changed, added := false, false
	t.machines = copied(t.machines)
	for _, cmd := range batch {
		switch c := cmd.(type) {
		case createToken:
			changed = t.create(c, &d, at) || changed
		case redeemToken:
			added = t.redeem(c, &d, at) || added
		case revokeToken:
			changed = t.revoke(c, &d, at) || changed
		case expiryElapsed:
			changed = t.expire(&d, at) || changed
		case poisoned:
			if r, ok := c.cmd.(redeemToken); ok {
				fault := messages.Faultf(messages.CodeInternal, "internal error: see the orchestrator's log")
				d.then(tell{r.session, redeemed{request: r.request, fault: fault}})
			}
		case tokenGoneNoted:
			t.gone[c.worker] = true
		case retireToken:
			if len(batch) == 1 { // else it comes again: nothing else may stand in that commit
				t.retire(c, &d)
			}
		}
	}
	if added && t.state == messages.TokenUnused {
		t.state, changed = messages.TokenEnrolled, true
	}
	if changed {
		t.version++
		d.writes = append(d.writes, t.write())
	}
	// Whoever was admitted names the version of the token that admits it: a revocation in between wins.
	for i, e := range d.effects {
		if told, ok := e.(tell); ok {
			if enroll, ok := told.msg.(enrollWorker); ok {
				enroll.tokenVersion = t.version
				d.effects[i] = tell{told.to, enroll}
			}
		}
	}
	if t.version == 0 || (t.state.Ended() && len(resumeToken(t, at)) == 0) {
		d.then(leave{})
	}
	return t, d
}

// resumeToken is what is owed for a token: once it has ended, none of its workers stays connected.
func resumeToken(t tokenState, _ moment) []obligation {
	if !t.state.Ended() {
		return nil
	}
	var owed []obligation
	for _, worker := range t.machines {
		if !t.gone[worker] {
			owed = append(owed, obligation{id: worker, to: workerAddress(worker), msg: tokenGone{t.name, t.generation, t.code()}})
		}
	}
	return owed
}

func (t tokenState) code() messages.Code {
	if t.state == messages.TokenRevoked {
		return messages.CodeTokenRevoked
	}
	return messages.CodeTokenExpired
}

// timers are the token's timers, for an actor that starts.
func (t tokenState) timers(at moment) []effect {
	if t.version == 0 || t.state.Ended() {
		return nil
	}
	return []effect{arm{timerExpiry, max(t.expiresAt.Sub(at.now), 0), expiryElapsed{}}}
}

func (t *tokenState) create(c createToken, d *decision, at moment) bool {
	if t.version > 0 && !t.state.Ended() && at.now.Before(t.expiresAt) {
		if equalDigest(t.digest, c.digest) { // the same question again: its answer was lost
			d.then(respond{to: c.answer, result: tokenIs{t.state, t.expiresAt}})
			return false
		}
		d.then(respond{to: c.answer, err: messages.Faultf(messages.CodeExists, "enrollment token %s exists: revoke it first, or choose another name", t.name)})
		return false
	}
	t.generation++
	t.digest, t.max, t.state = c.digest, c.max, messages.TokenUnused
	t.createdAt, t.expiresAt, t.revokedAt = at.now, at.now.Add(c.duration), time.Time{}
	t.machines, t.gone = make(map[string]string), make(map[string]bool)
	d.then(respond{to: c.answer, result: tokenIs{t.state, t.expiresAt}})
	d.then(arm{timerExpiry, c.duration, expiryElapsed{}})
	return true
}

// redeem admits a machine or says why not. Nothing is said of a token to somebody who does not have its secret.
func (t *tokenState) redeem(c redeemToken, d *decision, at moment) bool {
	fault := t.judge(c, at)
	if fault != nil {
		d.then(tell{c.session, redeemed{request: c.request, fault: fault}})
		return false
	}
	worker, known := t.machines[c.params.GetMachineId()]
	if !known {
		worker = t.name
		if t.max != 1 {
			worker = c.worker
		}
		t.machines[c.params.GetMachineId()] = worker
		d.writes = append(d.writes, write{
			kind: recordBinding, id: bindingID(t.name, t.generation, c.params.GetMachineId()), state: "bound",
			body: &messages.BindingRecord{
				Token: t.name, Generation: t.generation, MachineId: c.params.GetMachineId(), Worker: worker, EnrolledAt: messages.Time(at.now),
			},
		})
	}
	d.then(
		tell{c.session, redeemed{request: c.request, worker: worker}},
		tell{workerAddress(worker), enrollWorker{
			name: worker, token: t.name, tokenGen: t.generation, session: c.number, request: c.request, protocol: c.protocol,
			params: c.params,
		}},
	)
	return !known
}

func (t *tokenState) judge(c redeemToken, at moment) *messages.Fault {
	switch {
	case t.version == 0 || !equalDigest(t.digest, c.digest):
		return messages.Faultf(messages.CodeInvalidToken, "the enrollment token is not valid here: check that it was copied whole, and that it belongs to this orchestrator")
	case t.state == messages.TokenRevoked:
		return messages.Faultf(messages.CodeTokenRevoked, "enrollment token %s was revoked: create a new one", t.name)
	case t.state == messages.TokenExpired || !at.now.Before(t.expiresAt):
		return messages.Faultf(messages.CodeTokenExpired, "enrollment token %s has expired: create a new one", t.name)
	}
	_, known := t.machines[c.params.GetMachineId()]
	if !known && t.max >= 0 && len(t.machines) >= int(t.max) {
		return messages.Faultf(messages.CodeEnrollmentsSpent,
			"enrollment token %s has admitted as many machines as it may (%d): if this is the same machine as before, keep its --cache-dir between starts; for more machines create the token with --max-enrollments",
			t.name, t.max)
	}
	return nil
}

func (t *tokenState) revoke(c revokeToken, d *decision, at moment) bool {
	switch {
	case t.version == 0:
		d.then(respond{to: c.answer, err: messages.Faultf(messages.CodeNotFound, "no enrollment token %s", t.name)})
		return false
	case t.state.Ended(): // terminal is final
		d.then(respond{to: c.answer, result: tokenIs{t.state, t.expiresAt}})
		return false
	}
	t.state, t.revokedAt = messages.TokenRevoked, at.now
	d.then(respond{to: c.answer, result: tokenIs{t.state, t.expiresAt}}, disarm{timerExpiry})
	return true
}

func (t *tokenState) expire(d *decision, at moment) bool {
	if t.version == 0 || t.state.Ended() {
		return false
	}
	if at.now.Before(t.expiresAt) {
		d.then(t.timers(at)...)
		return false
	}
	t.state = messages.TokenExpired
	return true
}

func bindingID(token string, generation uint32, machine string) string {
	return leaseID(token, generation) + "/" + machine
}

func copied(m map[string]string) map[string]string {
	c := make(map[string]string, len(m))
	for k, v := range m {
		c[k] = v
	}
	return c
}

func (t tokenState) write() write {
	return write{
		// A token stays among the live records when it ends: its name can be given again.
		kind: kindToken, id: t.name, replaces: t.version - 1, state: string(t.state),
		body: &messages.TokenRecord{
			Name: t.name, Generation: t.generation, Digest: t.digest, State: string(t.state), CreatedAt: messages.Time(t.createdAt),
			ExpiresAt: messages.Time(t.expiresAt), MaxEnrollments: t.max, RevokedAt: messages.Time(t.revokedAt),
		},
	}
}

// tokenFrom is the state of a token as the journal has it.
func tokenFrom(name string, r *messages.TokenRecord, version uint64, bindings []*messages.BindingRecord) tokenState {
	t := tokenState{name: name, machines: make(map[string]string), gone: make(map[string]bool)}
	if r == nil {
		return t
	}
	t.version, t.generation, t.digest, t.state = version, r.GetGeneration(), r.GetDigest(), messages.TokenState(r.GetState())
	t.createdAt, t.expiresAt, t.revokedAt = messages.GoTime(r.GetCreatedAt()), messages.GoTime(r.GetExpiresAt()), messages.GoTime(r.GetRevokedAt())
	t.max = r.GetMaxEnrollments()
	for _, b := range bindings {
		if b.GetGeneration() == t.generation {
			t.machines[b.GetMachineId()] = b.GetWorker()
		}
	}
	return t
}
