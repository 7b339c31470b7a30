"""Access control of a broker, as RocketMQ's ACL 1.0: accounts, what each may do, and the check of each request.

Knows: the file plain_acl.yml, the signatures of requests, and which permissions each request needs.
Does not know: stores, and how a broker processes a request.
Others use: `validator` (AccessValidator), `rule_files` (RuleFiles), `acl_processor` (AclProcessor).
"""
