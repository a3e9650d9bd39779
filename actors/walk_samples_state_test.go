package actors

import (
	"fmt"
	"time"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/workflow"
)

// unheard is a command that no machine knows.
type unheard struct{}

func samplePlan() *workflow.Plan {
	return &workflow.Plan{
		Name: "w", Jobs: []workflow.Job{{Name: "j", Steps: []int{0, 1}}},
		Steps: []workflow.Step{
			{Name: "s", Model: "command/shell", Method: "run", Placement: messages.Placement{Platform: "linux"}, Timeout: time.Minute, OnWorkerLost: messages.LostRequeue},
			{Name: "later", Model: "command/shell", Method: "run", Needs: []int{0}, OnWorkerLost: messages.LostRequeue},
		},
	}
}

func sampleTime(seconds int) time.Time {
	return time.Date(2026, 1, 2, 3, 0, seconds, 0, time.UTC)
}

// stepStates are steps in every status, each also with a cancel and after some time of its life.
func stepStates() map[string]func() stepState {
	states := make(map[string]func() stepState)
	for _, status := range messages.AllStepStatuses() {
		for _, cancel := range []string{"", "cancelled", "killed"} {
			for _, aged := range []bool{false, true} {
				states[fmt.Sprintf("%s %s aged:%v", status, cancel, aged)] = func() stepState { return sampleStep(status, cancel, aged) }
			}
		}
	}
	states["waiting for its worker after a restart"] = func() stepState {
		s := sampleStep(messages.StepRunning, "", true)
		s.awaiting, s.leaseUp = true, true
		return s
	}
	states["in line from before a restart"] = func() stepState {
		s := sampleStep(messages.StepQueued, "", true)
		s.orphan, s.schedulerEpoch = true, 0
		return s
	}
	return states
}

func sampleStep(status messages.StepStatus, cancel string, aged bool) stepState {
	s := stepState{
		version: 4, run: "r", workflow: "w", job: "j", step: "s", def: &samplePlan().Steps[0], limit: time.Minute, status: status,
		attempt: 1, place: 7, readyAt: sampleTime(1), grace: time.Second, episode: 1, queueID: "r.0.q1", queuedAt: sampleTime(2),
	}
	if aged {
		s.losses, s.refusals, s.episode, s.dispatches, s.queueID = 2, 1, 3, 2, "r.0.q3"
		s.waited, s.queuedFor = 5*time.Second, 6*time.Second
	}
	switch status {
	case messages.StepQueued:
		s.pending, s.schedulerEpoch = 1, 2
	case messages.StepRunning:
		s.dispatches++
		s.dispatchID, s.generation, s.worker, s.startedAt = fmt.Sprintf("r.0.%d", s.dispatches), 1, "a", sampleTime(3)
		s.leaseUp = true
	default:
		if status.Ended() {
			s.endedAt = sampleTime(4)
		}
	}
	if cancel != "" && status != messages.StepQueued {
		s.cancelAt, s.cancelBy, s.forced = sampleTime(3), "me", cancel == "killed"
	}
	return s
}

func stepCommands() map[string]func() any {
	commands := map[string]func() any{
		"another's deadline": func() any { return queueDeadline{"r.0.q9"} },
		"offer noted":        func() any { return offerNoted{"r.0.q3", 5} },
		"scheduler started":  func() any { return schedulerStarted{6} },
		"end noted":          func() any { return endNoted{} },
		"cancel":             func() any { return cancelStep{by: "me", at: sampleTime(9)} },
		"kill":               func() any { return cancelStep{by: "me", force: true, at: sampleTime(9)} },
		"rejoin":             func() any { return rejoin{sampleTime(5)} },
		"rouse":              func() any { return rouseStep{} },
		"rouse and cancel":   func() any { return rouseStep{cancelStep{by: "me", at: sampleTime(9)}} },
		"roused":             func() any { return roused{} },
		"await noted":        func() any { return awaitNoted{} },
		"claimed":            func() any { return sampleClaimedEnd("r.0.1/1", false) },
		"claimed and lost":   func() any { return sampleClaimedEnd("r.0.3/1", true) },
		"worker back":        func() any { return workerBack{} },
		"adoption elapsed":   func() any { return adoptionElapsed{} },
		"poisoned":           func() any { return poisoned{assignStep{}} },
		"refused":            func() any { return commitRefused{cmd: cancelStep{}} },
		"refused choice": func() any {
			return commitRefused{cmd: assignStep{"r.0.q3", "r.0.3", choice{ticket: 4, worker: "a", version: 2, epoch: 5}}}
		},
		"unheard": func() any { return unheard{} },
	}
	for _, q := range []string{"r.0.q1", "r.0.q3"} {
		commands["deadline of "+q] = func() any { return queueDeadline{q} }
		for _, dispatch := range []string{"r.0.1", "r.0.3"} {
			commands["choice for "+q+" as "+dispatch] = func() any {
				return assignStep{q, dispatch, choice{ticket: 4, worker: "a", instance: "i", version: 2, epoch: 5}}
			}
		}
	}
	for _, lease := range []string{"r.0.1/1", "r.0.3/1"} {
		commands["lease up "+lease] = func() any { return leaseUp{lease} }
		for _, status := range []string{
			outcomeSucceeded, outcomeFailed, outcomeCancelled, outcomeTimeout, outcomeRefused, outcomeLost, outcomeRestart, "of a newer version",
		} {
			for _, wrote := range []bool{false, true} {
				commands[fmt.Sprintf("end of %s: %s, wrote %v", lease, status, wrote)] = func() any {
					return leaseEnded{lease: lease, worker: "a", hasWrites: wrote, outcome: &messages.Outcome{
						Status: status, Code: "c", Error: "e", StartedAt: messages.Time(sampleTime(6)),
						Outputs: []*messages.KeyValue{{Key: "k", Value: "v"}},
					}}
				}
			}
		}
	}
	return commands
}

// sampleClaimedEnd is the end by a restart of a lease that its worker claims.
func sampleClaimedEnd(lease string, lost bool) leaseEnded {
	return leaseEnded{
		lease: lease, worker: "a", outcome: &messages.Outcome{Status: outcomeRestart}, logged: true, durable: 5,
		claim: &claimLease{lease: lease, worker: "a", instance: "i", version: 7, lost: lost},
	}
}

// leaseStates are leases in every state, in all that is known of them.
func leaseStates() map[string]func() leaseState {
	states := make(map[string]func() leaseState)
	for _, state := range messages.AllLeaseStates() {
		for _, cancel := range []string{"", "cancelled", "killed"} {
			for _, output := range []string{"none", "waiting", "logged"} {
				for _, wrote := range []bool{false, true} {
					states[fmt.Sprintf("%s %s output:%s wrote:%v", state, cancel, output, wrote)] = func() leaseState {
						return sampleLease(state, cancel, output, wrote)
					}
				}
			}
		}
	}
	for name, l := range map[string]leaseState{"": {}, ", known to its step": {stepKnows: true}, ", adopted": {adopted: true, stepKnows: true}} {
		states["expired by a restart"+name] = func() leaseState {
			r := sampleLease(messages.LeaseExpired, "", "logged", false)
			r.outcome = &messages.Outcome{Status: outcomeRestart}
			r.stepKnows, r.adopted = l.stepKnows, l.adopted
			return r
		}
	}
	states["unknown"] = func() leaseState {
		return leaseState{dispatchID: "x", state: messages.LeaseExpired, stepKnows: true, slotKnows: true, unknown: "x/1"}
	}
	return states
}

func sampleLease(state messages.LeaseState, cancel, output string, wrote bool) leaseState {
	l := leaseState{
		version: 2, dispatchID: "r.0.1", generation: 1, run: "r", workflow: "w", job: "j", step: "s", worker: "a", instance: "i",
		handedAt: 3, attempt: 1, def: &samplePlan().Steps[0], grace: time.Second, state: state, hasWrites: wrote, createdAt: sampleTime(1),
		session: 8, accepted: true, acceptedAt: sampleTime(2), lostAt: sampleTime(3),
	}
	switch output {
	case "waiting":
		l.received = 5
		if state == messages.LeaseActive {
			l.buffer = []*messages.OutputChunk{{Data: []byte("hello"), Stream: "stdout"}}
		}
	case "logged":
		l.logged, l.durable, l.received = true, 5, 5
	}
	if state != messages.LeaseActive {
		l.outcome = &messages.Outcome{Status: outcomeCancelled}
		l.cancelAt, l.forced = sampleTime(3), true
	}
	if state.Ended() {
		l.endedAt, l.outcome = sampleTime(4), &messages.Outcome{Status: outcomeFailed, Code: "c", Error: "e"}
	}
	if cancel != "" {
		l.cancelAt, l.forced = sampleTime(3), cancel == "killed" || state == messages.LeaseFenced
	}
	return l
}

func leaseCommands() map[string]func() any {
	frame := func(f *messages.Frame) func() any {
		return func() any { return leaseFrame{"r.0.1/1", 9, "a", f} }
	}
	event := func(e *messages.Event) *messages.Frame {
		return &messages.Frame{Id: "r.0.1/1", Body: &messages.Frame_Event{Event: e}}
	}
	output := func(offset uint32, text string) *messages.Frame {
		return event(&messages.Event{Event: &messages.Event_Output{Output: &messages.OutputChunk{Offset: offset, Data: []byte(text), Stream: "stderr"}}})
	}
	result := func(status string, final uint32) *messages.Frame {
		return &messages.Frame{Body: &messages.Frame_Response{Response: messages.NewResponse(messages.VerbWorkerDispatch, &messages.DispatchResult{Status: status, FinalOffset: final})}}
	}
	commands := map[string]func() any{
		"ensure":             func() any { return ensureLease{lease: "r.0.1/1", step: stepAddress("r", "j", "s")} },
		"accepted":           frame(event(&messages.Event{Event: &messages.Event_Accepted{Accepted: &messages.DispatchAccepted{}}})),
		"started":            frame(event(&messages.Event{Event: &messages.Event_Started{Started: &messages.DispatchStarted{}}})),
		"output from 0":      frame(output(0, "hello")),
		"output from 5":      frame(output(5, "world")),
		"output with a gap":  frame(output(50, "!")),
		"no output":          frame(output(5, "")),
		"much output":        frame(output(5, string(make([]byte, inlineOutput+1)))),
		"an empty frame":     frame(&messages.Frame{}),
		"result before all":  frame(result(outcomeSucceeded, 50)),
		"refused":            frame(&messages.Frame{Body: &messages.Frame_Error{Error: &messages.Error{Code: string(messages.CodeWorkerBusy), Text: "no"}}}),
		"another's frame":    func() any { return leaseFrame{"r.0.1/1", 9, "b", result(outcomeSucceeded, 0)} },
		"cancel":             func() any { return cancelLease{by: "me"} },
		"kill":               func() any { return cancelLease{by: "me", force: true} },
		"socket lost":        func() any { return leaseSocketLost{} },
		"turned away":        func() any { return leaseTurnedAway{} },
		"named":              func() any { return leaseNamed{7, 3} },
		"lost":               func() any { return leaseLost{reason: "gone"} },
		"came without it":    func() any { return leaseLost{reason: "gone", untaken: true} },
		"claimed":            func() any { return claimLease{lease: "r.0.1/1", worker: "a", instance: "i", version: 7} },
		"claimed by another": func() any { return claimLease{lease: "r.0.1/1", worker: "b", instance: "x", version: 7} },
		"step adopted":       func() any { return leaseNoted{lease: "r.0.1/1", adopted: true} },
		"grace elapsed":      func() any { return graceElapsed{} },
		"flush elapsed":      func() any { return flushElapsed{} },
		"backstop elapsed":   func() any { return backstopElapsed{} },
		"step noted":         func() any { return leaseNoted{lease: "r.0.1/1"} },
		"slot noted":         func() any { return slotNoted{"r.0.1"} },
		"slot asked for":     func() any { return confirmSlot{"r.0.1", 4} },
		"scheduler started":  func() any { return schedulerStarted{4} },
		"worker started":     func() any { return workerStarted{"a"} },
		"another one starts": func() any { return workerStarted{"b"} },
		"poisoned":           func() any { return poisoned{flushElapsed{}} },
		"refused commit":     func() any { return commitRefused{cmd: flushElapsed{}} },
		"mark writes":        func() any { return markWrites{"r.0.1/1", newAnswer()} },
		"refused mark":       func() any { return commitRefused{cmd: markWrites{"r.0.1/1", newAnswer()}, noSpace: true} },
		"unheard":            func() any { return unheard{} },
	}
	for _, status := range []string{outcomeSucceeded, outcomeFailed, outcomeCancelled, outcomeTimeout, outcomeLost, outcomeHandedBack, "of a newer version"} {
		commands["result "+status] = frame(result(status, 5))
	}
	return commands
}

// workerStates are workers in every combination of what is kept of them.
func workerStates() map[string]func() workerState {
	states := map[string]func() workerState{
		"none": func() workerState { return workerFrom("a", nil, 0, timing{grace: time.Second}) },
	}
	for _, connected := range []bool{false, true} {
		for _, intent := range messages.AllWorkerIntents() {
			for _, health := range messages.AllWorkerHealths() {
				for _, leases := range []int{0, 2} {
					states[fmt.Sprintf("connected:%v %s %s with %d leases", connected, intent, health, leases)] = func() workerState {
						return sampleWorker(connected, intent, health, leases)
					}
				}
			}
		}
	}
	states["asked for a sign of life"] = func() workerState {
		w := sampleWorker(true, messages.IntentNone, messages.HealthOK, 1)
		n := sampleEnroll("other", 77)
		w.newcomer = &n
		return w
	}
	for _, connected := range []bool{false, true} {
		for _, noted := range []bool{false, true} {
			for _, held := range []bool{false, true} {
				states[fmt.Sprintf("ordered to drain, connected:%v noted:%v held:%v", connected, noted, held)] = func() workerState {
					return sampleOrdered(connected, noted, held)
				}
			}
		}
	}
	states["its drain is taken back"] = func() workerState { return sampleResuming(false) }
	states["its drain, which is before a pause, is taken back"] = func() workerState { return sampleResuming(true) }
	states["its drain is taken back, and it has said so"] = func() workerState {
		w := sampleResuming(false)
		w.saysDraining = false
		return w
	}
	for _, connected := range []bool{false, true} {
		states[fmt.Sprintf("it drains as this actor has seen, connected:%v", connected)] = func() workerState {
			w := sampleWorker(connected, messages.IntentDraining, messages.HealthOK, 2)
			w.admitted, w.saysDraining = true, true
			return w
		}
	}
	states["its drain was taken back while it was away"] = func() workerState {
		w := sampleWorker(false, messages.IntentNone, messages.HealthOK, 2)
		w.ordered = true
		return w
	}
	return states
}

// sampleOrdered is a worker that was asked to drain; noted: it has said that it does.
func sampleOrdered(connected, noted, held bool) workerState {
	w := sampleWorker(connected, messages.IntentDraining, messages.HealthOK, 2)
	w.ordered, w.orderNoted, w.held, w.reason, w.intentAt = true, noted && connected, held, "drain was asked for", sampleTime(4)
	if held {
		w.note, w.until = "driver", walkNow().now.Add(time.Minute)
	}
	return w
}

func sampleResuming(held bool) workerState {
	w := sampleOrdered(true, true, held)
	w.resuming, w.saysDraining, w.resumers = true, true, []*answer{newAnswer()}
	return w
}

func sampleWorker(connected bool, intent messages.WorkerIntent, health messages.WorkerHealth, leases int) workerState {
	w := workerState{
		version: 5, name: "a", token: "a", generation: 1, machine: "m", instance: "i", connected: connected, intent: intent, health: health,
		labels: messages.LabelsOf(map[string]string{"gpu": "true"}), platform: "linux", arch: "amd64", build: "v", protocol: 1, capacity: 2,
		enrolledAt: sampleTime(1), lastSeenAt: sampleTime(2), session: 9, enrolledVersion: 4, told: 5, timing: timing{grace: time.Second},
		sessionLives: connected,
	}
	if !connected {
		w.goneAt = sampleTime(3)
	}
	for i := range leases {
		w.leases = with(w.leases, fmt.Sprintf("r.%d.1/1", i), uint32(i+1))
	}
	return w
}

func sampleEnroll(instance string, session uint64) enrollWorker {
	return enrollWorker{
		name: "a", token: "a", tokenGen: 1, tokenVersion: 2, session: session, request: "e", protocol: 1,
		params: &messages.EnrollParams{
			MachineId: "m", InstanceUuid: instance, Capacity: 3, Platform: "linux", Arch: "arm64", DispatchSeq: 4,
			InFlight: []*messages.InFlight{{DispatchId: "r.0.1", Generation: 1}, {DispatchId: "r.9.1", Generation: 1}},
		},
	}
}

func workerCommands() map[string]func() any {
	says := func(intent messages.WorkerIntent, session uint64) func() any {
		return func() any {
			return workerSays{session, "q", &messages.StatusParams{Intent: string(intent), Reason: "r"}}
		}
	}
	over := func(code messages.Code) func() any {
		return func() any { return leaseOver{lease: "r.0.1/1", refusal: code, text: "no"} }
	}
	draining := sampleEnroll("i", 10)
	draining.params.Intent = string(messages.IntentDraining)
	return map[string]func() any{
		"enrolls again":            func() any { return sampleEnroll("i", 10) },
		"enrolls on an old socket": func() any { return sampleEnroll("i", 3) },
		"enrolls on its socket":    func() any { return sampleEnroll("i", 9) },
		"another instance":         func() any { return sampleEnroll("other", 11) },
		"enrolls while it drains":  func() any { return draining },
		"refused enrollment":       func() any { return commitRefused{cmd: sampleEnroll("i", 10)} },
		"a sign of life":           func() any { return probeAnswered{9, true} },
		"no sign of life":          func() any { return probeAnswered{9, false} },
		"socket ends":              func() any { return sessionEnded{9} },
		"an old socket ends":       func() any { return sessionEnded{4} },
		"reports":                  says(messages.IntentNone, 9),
		"drains":                   says(messages.IntentDraining, 9),
		"an old socket drains":     says(messages.IntentDraining, 4),
		"token revoked":            func() any { return tokenGone{"a", 1, messages.CodeTokenRevoked} },
		"another token expires":    func() any { return tokenGone{"b", 1, messages.CodeTokenExpired} },
		"lease here": func() any {
			return leaseHere{"r.5.1/1", 5, &messages.DispatchParams{DispatchId: "r.5.1"}}
		},
		"lease here again":          func() any { return leaseHere{"r.0.1/1", 5, nil} },
		"lease of before":           func() any { return leaseHere{"r.5.1/1", 2, nil} },
		"lease over":                over(""),
		"busy":                      over(messages.CodeWorkerBusy),
		"refuses since it drains":   over(messages.CodeWorkerDraining),
		"cannot start":              over(messages.CodeWorkerCannotStart),
		"another lease over":        func() any { return leaseOver{lease: "r.7.1/1"} },
		"step waits for it":         func() any { return awaitWorker{step: stepAddress("r", "j", "s"), lease: "r.0.1/1"} },
		"grace of a step over":      func() any { return awaitWorker{step: stepAddress("r", "j", "s"), lease: "r.9.1/1", over: true} },
		"claim settled":             func() any { return claimSettled{"r.9.1/1", true} },
		"claim adopted":             func() any { return leaseHere{"r.9.1/2", 5, &messages.DispatchParams{}} },
		"slot noted":                func() any { return slotNoted{"r.9.1"} },
		"goodbye heard":             func() any { return goodbyeHeard{9} },
		"dismiss elapsed":           func() any { return dismissElapsed{} },
		"dismiss again":             func() any { return dismissAgain{} },
		"cancel":                    func() any { return cancelDispatch{"r.0.1/1", 5, false} },
		"kill":                      func() any { return cancelDispatch{"r.0.1/1", 5, true} },
		"cancel of a lost dispatch": func() any { return cancelDispatch{"r.8.1/1", 1, false} },
		"noted":                     func() any { return workerNoted{5} },
		"an old version noted":      func() any { return workerNoted{3} },
		"scheduler started":         func() any { return schedulerStarted{3} },
		"probation elapsed":         func() any { return probationElapsed{} },
		"idle elapsed":              func() any { return idleElapsed{} },
		"pause elapsed":             func() any { return pauseElapsed{} },
		"order elapsed":             func() any { return orderElapsed{} },
		"drain it":                  func() any { return drainWorker{newAnswer()} },
		"pause it":                  func() any { return pauseWorker{"n", time.Minute, newAnswer()} },
		"resume it":                 func() any { return resumeWork{newAnswer()} },
		"order to drain answered":   func() any { return orderAnswered{9, orderDrain} },
		"order to go on answered":   func() any { return orderAnswered{9, orderResume} },
		"an old socket answers":     func() any { return orderAnswered{4, orderResume} },
		"await gone":                func() any { return awaitGone{newAnswer()} },
		"retire it":                 func() any { return retireWorker{sampleTime(50)} },
		"unheard":                   func() any { return unheard{} },
	}
}

// tokenStates are tokens in every state, with none, some and all of the machines that they admit.
func tokenStates() map[string]func() tokenState {
	states := map[string]func() tokenState{"none": func() tokenState { return tokenFrom("t", nil, 0, nil) }}
	for _, state := range messages.AllTokenStates() {
		for machines := range 3 {
			for _, over := range []bool{false, true} {
				states[fmt.Sprintf("%s with %d machines, over %v", state, machines, over)] = func() tokenState {
					return sampleToken(state, machines, over)
				}
			}
		}
	}
	return states
}

func sampleToken(state messages.TokenState, machines int, over bool) tokenState {
	t := tokenState{
		version: 3, name: "t", generation: 2, digest: modelDigest("t"), state: state, createdAt: sampleTime(1),
		expiresAt: walkNow().now.Add(time.Hour), max: 2, machines: make(map[string]string), gone: make(map[string]bool),
	}
	if over {
		t.expiresAt = sampleTime(2)
	}
	if state == messages.TokenRevoked {
		t.revokedAt = sampleTime(3)
	}
	for i := range machines {
		t.machines[fmt.Sprintf("m%d", i)] = fmt.Sprintf("t-%d", i)
	}
	return t
}

func tokenCommands() map[string]func() any {
	redeem := func(digest, machine string) func() any {
		return func() any {
			return redeemToken{
				digest: modelDigest(digest), worker: "t of " + machine, session: sessionAddress(5), number: 5, request: "e", protocol: 1,
				params: &messages.EnrollParams{MachineId: machine, InstanceUuid: "i"},
			}
		}
	}
	return map[string]func() any{
		"create":            func() any { return createToken{modelDigest("new"), time.Hour, 1, newAnswer()} },
		"revoke":            func() any { return revokeToken{newAnswer()} },
		"a known machine":   redeem("t", "m0"),
		"a new machine":     redeem("t", "m9"),
		"a wrong secret":    redeem("x", "m0"),
		"expiry elapsed":    func() any { return expiryElapsed{} },
		"worker gone":       func() any { return tokenGoneNoted{"t-0"} },
		"no worker of it":   func() any { return tokenGoneNoted{"x"} },
		"retire":            func() any { return retireToken{before: sampleTime(50), last: true} },
		"refused":           func() any { return commitRefused{cmd: []any{expiryElapsed{}}} },
		"poisoned":          func() any { return poisoned{expiryElapsed{}} },
		"unheard":           func() any { return unheard{} },
		"retire some of it": func() any { return retireToken{before: sampleTime(50), bindings: []string{"t/2/m0"}} },
	}
}
