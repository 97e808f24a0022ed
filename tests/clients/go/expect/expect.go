// Package expect is what the clients' programs share: a program ends where something is not as expected.
package expect

import "log"

// Release deletes a lock if it is its holder's: the script of the page on distributed locks.
const Release = `if redis.call("get",KEYS[1]) == ARGV[1] then
    return redis.call("del",KEYS[1])
else
    return 0
end`

// No expects no error.
func No(what string, err error) {
	if err != nil {
		log.Fatalf("%s: %v", what, err)
	}
}

// Same expects this, and no error.
func Same[T comparable](what string, found T, err error, expected T) {
	No(what, err)
	if found != expected {
		log.Fatalf("%s: expected %v, found %v", what, expected, found)
	}
}
