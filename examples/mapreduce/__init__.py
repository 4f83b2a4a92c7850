"""MapReduce over real text: how often does each word occur?"""
