package gateway

import (
	"net/http"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/swampd/swampd/messages"
)

// maxReason is how many bytes of a reason fit into a close frame.
const maxReason = 123

// statusOf says how HTTP answers a code, and with which status a WebSocket is closed for it. The statuses of sockets are
// part of the protocol: a number is never used again for something else. Codes that a newer part of the program may bring
// are 500 and 4000.
func statusOf(code messages.Code) (int, websocket.StatusCode) {
	switch code {
	case messages.CodeInvalid:
		return http.StatusBadRequest, 4001
	case messages.CodeNotFound:
		return http.StatusNotFound, 4002
	case messages.CodeExists:
		return http.StatusConflict, 4003
	case messages.CodeUnauthorized:
		return http.StatusUnauthorized, 4004
	case messages.CodeUnknownVerb:
		return http.StatusNotFound, 4005
	case messages.CodeDuplicateID:
		return http.StatusConflict, 4006
	case messages.CodeOutOfOrder:
		return http.StatusConflict, 4007
	case messages.CodeMalformed:
		return http.StatusBadRequest, 4008
	case messages.CodeFrameTooLarge:
		return http.StatusRequestEntityTooLarge, 4009
	case messages.CodeRunIDConflict:
		return http.StatusConflict, 4010
	case messages.CodeEnded:
		return http.StatusConflict, 4011
	case messages.CodeProtocolMismatch:
		return http.StatusBadRequest, 4012
	case messages.CodeInvalidToken:
		return http.StatusForbidden, 4013
	case messages.CodeTokenRevoked:
		return http.StatusForbidden, 4014
	case messages.CodeTokenExpired:
		return http.StatusForbidden, 4015
	case messages.CodeEnrollmentsSpent:
		return http.StatusForbidden, 4016
	case messages.CodeAlreadyConnected:
		return http.StatusConflict, 4017
	case messages.CodeSuperseded:
		return http.StatusConflict, 4018
	case messages.CodeRateLimited:
		return http.StatusTooManyRequests, 4019
	case messages.CodeNotReady:
		return http.StatusServiceUnavailable, 4020
	case messages.CodeNotLeader:
		return http.StatusServiceUnavailable, 4021
	case messages.CodeOverloaded:
		return http.StatusServiceUnavailable, 4022
	case messages.CodeNoSpace:
		return http.StatusInsufficientStorage, 4023
	case messages.CodeUnavailable:
		return http.StatusServiceUnavailable, 4024
	case messages.CodeInternal:
		return http.StatusInternalServerError, 4025
	case messages.CodeWorkerBusy:
		return http.StatusServiceUnavailable, 4026
	case messages.CodeWorkerDraining:
		return http.StatusServiceUnavailable, 4027
	case messages.CodeWorkerCannotStart:
		return http.StatusServiceUnavailable, 4028
	case messages.CodeTooManyRequests:
		return http.StatusTooManyRequests, 4029
	case messages.CodeStreamOverflow:
		return http.StatusServiceUnavailable, 4030
	case messages.CodeConflict:
		return http.StatusConflict, 4031
	case messages.CodeDigestMismatch:
		return http.StatusBadRequest, 4032
	case messages.CodePreconditionFailed:
		return http.StatusPreconditionFailed, 4033
	default:
		return http.StatusInternalServerError, 4000
	}
}

// closeReason is "code: text", as far as a close frame holds it.
func closeReason(f *messages.Fault) string {
	return cut(string(f.Code)+": "+f.Text, maxReason)
}

// cut shortens text to at most so many bytes, at the end of a character.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}
