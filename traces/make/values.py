"""Objects become JSON, and are read back."""
import json
import random

values = [{"a": i, "b": [random.random() for _ in range(8)], "c": str(i) * 3} for i in range(60000)]
text = json.dumps(values)
print(len(text), len(json.loads(text)))
