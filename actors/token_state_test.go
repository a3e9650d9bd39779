package actors

import (
	"testing"

	"github.com/swampd/swampd/messages"
)

func TestToken_Cells(t *testing.T) {
	t.Parallel()
	c := tokenCommands()
	unused, one, full := sampleToken(messages.TokenUnused, 0, false), sampleToken(messages.TokenEnrolled, 1, false), sampleToken(messages.TokenEnrolled, 2, false)
	revoked, expired := sampleToken(messages.TokenRevoked, 0, false), sampleToken(messages.TokenExpired, 0, true)
	revokedOne := sampleToken(messages.TokenRevoked, 1, false)
	endless := full
	endless.max = -1
	checkCells(t, tokenUnder(), []cell[tokenState]{
		{"a name that is free", tokenFrom("t", nil, 0, nil), c["create"](), "token unused; answer tokenIs; arm expiry"},
		{"a name that is taken", unused, c["create"](), "answer: exists"},
		{"a name whose token has ended", revoked, c["create"](), "token unused; answer tokenIs; arm expiry"},
		{"the first machine", unused, c["a new machine"](), "binding bound; token enrolled; tell session redeemed; tell worker enrollWorker"},
		{"a second machine is one more binding and no other version of the token", one, c["a new machine"](), "binding bound; tell session redeemed; tell worker enrollWorker"},
		{"a machine that is known", full, c["a known machine"](), "tell session redeemed; tell worker enrollWorker"},
		{"one machine too many", full, c["a new machine"](), "tell session redeemed"},
		{"any number of machines", endless, c["a new machine"](), "binding bound; tell session redeemed; tell worker enrollWorker"},
		{"a wrong secret", one, c["a wrong secret"](), "tell session redeemed"},
		{"a token that is over by the clock, whatever its record says", sampleToken(messages.TokenEnrolled, 1, true), c["a known machine"](), "tell session redeemed"},
		{"nobody is admitted after a revocation", revoked, c["a known machine"](), "tell session redeemed; leave"},
		{"a revocation throws out whom it had admitted", one, c["revoke"](), "token revoked; answer tokenIs; owes worker tokenGone"},
		{"a second revocation is answered", revokedOne, c["revoke"](), "answer tokenIs; owes worker tokenGone"},
		{"an expired token stays expired", expired, c["revoke"](), "answer tokenIs; leave"},
		{"its time is over", sampleToken(messages.TokenEnrolled, 1, true), expiryElapsed{}, "token expired; owes worker tokenGone"},
		{"a timer that is early is set again: only the clock decides", one, expiryElapsed{}, "arm expiry"},
		{"it leaves once all that it admitted are gone", revokedOne, tokenGoneNoted{"t-0"}, "leave"},
		{"no token of that name", tokenFrom("t", nil, 0, nil), c["revoke"](), "answer: not_found; leave"},
	})
}

func TestToken_SaysNothingOfItselfToWhoDoesNotHaveItsSecret(t *testing.T) {
	t.Parallel()
	for name, state := range tokenStates() {
		_, d := stepToken(state(), []any{tokenCommands()["a wrong secret"]()}, walkNow())
		for _, e := range d.effects {
			if told, ok := e.(tell); ok {
				r, ok := told.msg.(redeemed)
				if !ok || r.fault == nil || r.fault.Code != messages.CodeInvalidToken {
					t.Errorf("%s: a wrong secret gets %+v", name, told.msg)
				}
			}
		}
	}
}

func TestToken_AdmitsWhatItMayOfManyThatComeAtOnce(t *testing.T) {
	t.Parallel()
	tok := sampleToken(messages.TokenUnused, 0, false) // for two machines
	var batch []any
	for _, machine := range []string{"m1", "m2", "m1", "m3", "m4"} {
		r := tokenCommands()["a new machine"]().(redeemToken)
		r.params.MachineId = machine
		r.worker = "t of " + machine
		batch = append(batch, r)
	}
	tok, d := stepToken(tok, batch, walkNow())
	admitted := 0
	for _, e := range d.effects {
		if told, ok := e.(tell); ok {
			if enroll, ok := told.msg.(enrollWorker); ok {
				admitted++
				if enroll.tokenVersion != tok.version {
					t.Errorf("it is admitted at version %d, the token is at %d", enroll.tokenVersion, tok.version)
				}
			}
		}
	}
	if admitted != 3 || len(tok.machines) != 2 || len(d.writes) != 3 {
		t.Errorf("%d enrollments of %d machines in %d writes, want 3 of 2 in 3", admitted, len(tok.machines), len(d.writes))
	}
}
