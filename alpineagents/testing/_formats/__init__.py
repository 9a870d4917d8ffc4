"""What ProviderServer speaks: each provider's format, from the provider's side."""
