"""The paper's figures and its Table I from runs made here, and what the paper says of them, judged one by one."""
