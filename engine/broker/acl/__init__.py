"""Apache's plain ACL (org.apache.rocketmq.acl.plain): accounts in plain_acl.yml, signed requests, rights.

`addresses.py` reads patterns of addresses, `accounts.py` what a file says, `rights.py` has the rights that a request
may need (which code needs which: `engine.broker.requests.table`), `files.py` keeps the files, sees their changes and
changes them, `guard.py` judges; `strict.py` has what `aclStrict` asks for beyond Apache, and `message_topic.py` whose
message lies at an offset; `signer.py` signs what we ask name servers and our master. Off, only the declarations
(`perms.py`, `rights.py`, `strict.py`) are imported.

Where Apache forgets a check, it is made here; without `aclStrict` the list is complete, and a test holds all else equal
to Apache's:

- SEND_BATCH_MESSAGE needs PUB on its topic, LITE_PULL_MESSAGE what PULL_MESSAGE needs (Apache: nothing).
- SEND_REPLY_MESSAGE in both forms needs PUB on its topic, but for the reply topics themselves (Apache: nothing).
- A send to a retry topic needs SUB on that topic's group (Apache takes the group that another field names, or none).
- Changing the ACL itself (codes 50, 51, 53) needs an admin (Apache: any account; 5.x has it so, too).
- A pattern such as 10.*.3.4 means each of its parts (Apache looks at nothing after the first that varies).
- A query by unique key may be signed with or without the field that its client adds (Apache 4.9.8 refuses its own).
"""
