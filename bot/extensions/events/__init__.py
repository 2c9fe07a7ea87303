"""Events from outside, each of which starts a turn in a channel: `threadfast post`, and a signed webhook.

| from                                   | to        | when                                             |
|----------------------------------------|-----------|--------------------------------------------------|
| a request, checked (`request`)         | waiting   | it is durable; only then it is answered          |
| waiting                                | claimed   | a worker posts it in its channel, by key         |
| claimed, and its worker has died       | claimed   | another one looks for the post, then goes on     |
| claimed, and nothing could be posted   | waiting   | for half a minute; given up after a day          |
| claimed, and its post is out           | known     | the journal has the turn of the post's thread    |

What is known is never a second turn. `signature` has what proves who sent a request and that it is new.
"""
