"""The differential tester: the same random requests straight to a store and through the gateway, answers compared."""
