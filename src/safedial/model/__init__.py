"""What a user states: the guarantee and its assumptions, the dial, features, dose curves, costs and growth brackets.

Nothing here learns or decides. Every other room reads from this one; it reads from none but a few bounds.
"""
