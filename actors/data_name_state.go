package actors

import (
	"strings"

	"github.com/swampd/swampd/messages"
)

// maxArtifactName bounds the name of an artifact, in bytes.
const maxArtifactName = 255

// CheckArtifactName refuses what is no name of an artifact: parts of letters, digits, '.', '_' and '-' that are joined by
// slashes, none of them empty, "." or "..", and at most 255 bytes. The error is a *messages.Fault with the code invalid.
func CheckArtifactName(name string) error {
	if name == "" {
		return messages.Faultf(messages.CodeInvalid, "an artifact's name is needed")
	}
	if len(name) > maxArtifactName {
		return messages.Faultf(messages.CodeInvalid, "an artifact's name has at most %d bytes, not %d", maxArtifactName, len(name))
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." || part == ".." {
			return messages.Faultf(messages.CodeInvalid, "%q is no name of an artifact: a part of it is empty, '.' or '..'", name)
		}
		for i := range len(part) {
			if !artifactByte(part[i]) {
				return messages.Faultf(messages.CodeInvalid, "%q is no name of an artifact: its parts are letters, digits, '.', '_' and '-', joined by '/'", name)
			}
		}
	}
	return nil
}

func artifactByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
}

// The kinds of artifacts.
const (
	artifactJSON = "json"
	artifactFile = "file"
)

// artifactKind is the kind of a body by its media type, which is in lower case.
func artifactKind(mediaType string) string {
	if mediaType == "application/json" || strings.HasSuffix(mediaType, "+json") {
		return artifactJSON
	}
	return artifactFile
}

// Bounds on what a request says of itself.
const (
	maxContentType = 255
	maxRequestID   = 255
)

// checkRequestID refuses what is no request id.
func checkRequestID(id string) error {
	if id != "" && !short(id, maxRequestID) {
		return messages.Faultf(messages.CodeInvalid, "a request id is printable text of at most %d bytes", maxRequestID)
	}
	return nil
}
